"""Readers, one engine a module, each with a ``READER``: see :mod:`selector.drift.reading`."""
