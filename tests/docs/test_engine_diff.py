"""The page on comparing two versions of an engine names what the comparison gives."""

from __future__ import annotations

import re
from pathlib import Path

from selector.drift.between.changes import Kind
from selector.report.engines import TITLES

PAGE = (Path(__file__).parents[2] / "docs" / "engine-diff.md").read_text("utf-8")


def test_every_kind_is_explained_with_its_title() -> None:
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
    told = {
        kind: title
        for kinds, titles, *_ in rows
        for kind, title in zip(re.findall(r"`(\w+)`", kinds), titles.split(", "), strict=True)
    }
    for kind, title in TITLES.items():
        assert title.startswith(told[kind]), kind
    assert "`renamed`" in PAGE
    assert told.keys() | {Kind.RENAMED} == set(Kind)
