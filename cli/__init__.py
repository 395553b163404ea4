"""The command line: input, output and exit codes. Words are made in ``selector.report``."""
