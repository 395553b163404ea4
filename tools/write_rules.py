"""Writes ``docs/rules.md`` from the catalogue of lint: run after changing a rule."""

from __future__ import annotations

from pathlib import Path

from selector.lint.catalogue import rules
from selector.report.catalogue import rules_page

PAGE = Path(__file__).parent.parent / "docs" / "rules.md"

if __name__ == "__main__":
    PAGE.write_text(rules_page(rules()), "utf-8")
