"""The selector over HTTP: routes, strict bodies, problems, metrics, and a page for people."""
