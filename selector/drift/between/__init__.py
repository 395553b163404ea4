"""Two versions of an engine's code, compared with each other."""
