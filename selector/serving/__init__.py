"""What a serving engine will say, and what it said: its commands and its logs, read.

``commands`` reads a serve command and changes one; ``layers`` makes the layers that a command and
a model come to; ``preflight`` judges and mends them. ``logs`` reads an engine's errors;
``diagnosis`` tells why and what would help.
"""
