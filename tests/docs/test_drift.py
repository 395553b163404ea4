"""What ``docs/drift.md`` shows runs, on a package of vLLM's shape."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from selector.drift import modules, sources
from selector.drift.reading import EngineReading

from ..conftest import read_engine_files

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "drift.md").read_text("utf-8")
FINDINGS = (ROOT / "docs" / "drift-findings.md").read_text("utf-8")
ENGINE = ROOT / "tests" / "unit" / "drift" / "snippets" / "engine.txt"


def test_the_code_of_the_page_reads_a_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in read_engine_files(ENGINE).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    first, second, _ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    known: dict[str, Any] = {"wheel": tmp_path}
    exec(compile(first, "docs/drift.md", "exec"), known)
    exec(compile(second.replace("FLASHINFER_MLA_SPARSE_SM120", "SPARSE_SM120"), "…", "exec"), known)
    assert capsys.readouterr().out.startswith(
        "False vllm.v1.attention.sparse.SparseSM120Impl vllm/v1/attention/sparse.py:"
    )


ACME = {
    "platform": "def capability():\n    return probe()\n",
    "attention": """
from acme.platform import capability

class Base:
    supports_sink = False

    def __init__(self, page_size):
        if capability() < (9, 0) and page_size > 32:
            raise ValueError(page_size)

class Flash(Base):
    supports_sink = True

BACKENDS = {"flash": Flash, "base": Base, "made": probe()}
""",
}


def test_the_reader_of_the_page_reads_an_engine(tmp_path: Path) -> None:
    (tmp_path / "acme").mkdir()
    for name, text in {"__init__": "", **ACME}.items():
        (tmp_path / "acme" / f"{name}.py").write_text(text, "utf-8")
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[-1]
    known: dict[str, Any] = {}
    exec(compile(code, "docs/drift.md", "exec"), known)
    source = sources.open_source(tmp_path, "acme")
    reading: EngineReading = known["READER"].read(modules.Modules(source), ("8.0", "9.0"))
    flash, base = reading.backends
    assert (flash.name, base.name, reading.findings) == ("flash", "base", ())
    assert flash.cls is not None
    assert flash.cls.attributes["supports_sink"].answers()[""].value is True
    assert flash.impl is not None
    (guard,) = flash.impl.guards
    pages = next(one for one in guard.refuses if one.name in reading.vocabulary.arguments)
    assert {on: answer.value for on, answer in pages.answers().items()} == {"8.0": [64], "9.0": []}


def test_the_reader_of_the_page_tells_a_source_without_a_registry(tmp_path: Path) -> None:
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "__init__.py").write_text("", "utf-8")
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[-1]
    known: dict[str, Any] = {}
    exec(compile(code, "docs/drift.md", "exec"), known)
    source = sources.open_source(tmp_path, "acme")
    reading = known["READER"].read(modules.Modules(source), ("9.0",))
    assert [one.code for one in reading.findings] == ["DRF107"]


def test_every_code_that_reading_can_report_is_on_the_page_of_findings() -> None:
    folder = Path(modules.__file__).parent
    used = {
        code
        for path in folder.rglob("*.py")
        for code in re.findall(r'"(DRF1\d\d)"', path.read_text("utf-8"))
    }
    assert used == set(re.findall(r"^\| `(DRF1\d\d)`", FINDINGS, re.MULTILINE))
    first, last = min(used), max(used)
    assert f"(`{first}` to `{last}`)" in PAGE
    assert f"(`{first}` to `{last}`)" in FINDINGS
