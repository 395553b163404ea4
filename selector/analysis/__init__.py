"""Exact answers about whole manifests: what can be chosen, for how many questions, and where."""
