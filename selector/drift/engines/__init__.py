"""Readers, one engine a module; each holds a :class:`selector.drift.reading.Reader` as ``READER``."""
