"""The groups of layers that a command and a model come to, and what refuses them early."""
