"""Reads an engine's Python code without importing it, and says what each backend claims.

Words, data flow and the protocol of a reader: ``docs/drift.md``.
"""
