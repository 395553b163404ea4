"""What would have to change for a backend to run: options, tried on the resolver, nearest first."""
