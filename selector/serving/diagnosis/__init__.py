"""Why an engine refused a layer, and what would help."""
