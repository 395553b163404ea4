"""What ``docs/drift.md`` shows runs, on a package of vLLM's shape."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from selector.drift import modules, sources

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "drift.md").read_text("utf-8")
ENGINE = ROOT / "tests" / "unit" / "drift" / "snippets" / "engine.txt"


def test_the_code_of_the_page_reads_a_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in ENGINE.read_text("utf-8").split("#: ")[1:]:
        name, _, text = part.partition("\n")
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    first, second = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    known: dict[str, Any] = {"wheel": tmp_path}
    exec(compile(first, "docs/drift.md", "exec"), known)
    exec(compile(second.replace("FLASHINFER_MLA_SPARSE_SM120", "SPARSE_SM120"), "…", "exec"), known)
    assert capsys.readouterr().out.startswith(
        "False vllm.v1.attention.sparse.SparseSM120Impl vllm/v1/attention/sparse.py:"
    )


def test_every_code_that_reading_can_report_is_on_the_page() -> None:
    folder = Path(modules.__file__).parent
    used = {
        code
        for path in folder.rglob("*.py")
        for code in re.findall(r'"(CAP3\d\d)"', path.read_text("utf-8"))
    }
    assert used == set(re.findall(r"^\| `(CAP3\d\d)`", PAGE, re.MULTILINE))
    assert sources.FILE_BYTES > 0
