"""Lint: a catalogue of rules, run over manifests."""

from selector.lint import rules as _modules  # noqa: F401 (first: its name is taken below)
from selector.lint.catalogue import Rule, find_rule, rules
from selector.lint.running import Selection, lint

__all__ = ["Rule", "Selection", "find_rule", "lint", "rules"]
