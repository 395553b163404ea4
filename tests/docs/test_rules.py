"""The page of rules is what the catalogue says, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from selector.lint.catalogue import rules
from selector.report.catalogue import rules_page

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_it_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == rules_page(rules()), "run `make rules`"


def test_its_links_lead_to_a_section_of_each_rule() -> None:
    text = PAGE.read_text("utf-8")
    links = re.findall(r"\(#([\w-]+)\)", text)
    sections = [line[4:].lower().replace(" ", "-") for line in re.findall("(?m)^### .*$", text)]
    assert links == sections == [f"{rule.code}-{rule.name}".lower() for rule in rules()]
