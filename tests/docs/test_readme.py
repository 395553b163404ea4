"""What the README shows is what happens."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def run(arguments: str) -> str:
    import shlex

    result = CliRunner().invoke(app, shlex.split(arguments), env={"COLUMNS": "110"})
    assert result.exit_code == 0, result.output
    return result.stdout


def plain(text: str) -> str:
    """Text without digests and line numbers, which change with every edit of the manifest."""
    lines = (line.strip() for line in text.strip().splitlines())
    unnumbered = re.sub(r"(yaml| ):\d+", r"\1:N", " ".join(line for line in lines if line))
    return re.sub(r"\b[0-9a-f]{7}\b", "DIGEST", unnumbered)


def test_the_worked_answer_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    block = re.search(
        r"^    \$ attnsel (resolve.*)\n((?:    .*\n|\n(?=    ))+)", README, re.MULTILINE
    )
    assert block is not None
    assert plain(block[2]) == plain(run(block[1])), "run `make readme`"


def test_the_makefile_asks_the_same_question() -> None:
    demo = re.search(r"^demo:.*\n\t\$\(BIN\)/attnsel (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert demo is not None
    assert f"$ attnsel {demo[1]}\n" in README


def test_the_library_example_runs() -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    assert len([line for line in code[1].splitlines() if line]) == 5
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code[1], "README.md", "exec"), {})
    assert out.getvalue().split() == [
        "flashinfer_sparse_mla_sm120",
        "sparse_mqa",
        "flashinfer_sparse_mla_sm120",
    ]


def test_the_small_manifest_of_the_docs_lints_and_resolves(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "manifest.md").read_text()
    text = re.search(r"## A whole small manifest\n\n```yaml\n(.*?)```", page, re.DOTALL)
    assert text is not None
    path = tmp_path / "my-engine.yaml"
    path.write_text(text[1])
    run(f"lint {path}")
    run(f"inspect --manifest {path} --matrix")
    run(f"resolve --manifest {path} --gpu H200 --model llama-3.1-8b --query-len 512")


def test_the_library_page_runs_from_top_to_bottom() -> None:
    page = (ROOT / "docs" / "library.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "docs/library.md", "exec"), {})
    assert "flashinfer_trtllm_gen CAPABILITY 9.0 10.0, 10.3, 10.7" in out.getvalue()


def test_the_page_of_plans_runs_from_top_to_bottom() -> None:
    page = (ROOT / "docs" / "plan.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    assert code.count("assert") == 3
    exec(compile(code, "docs/plan.md", "exec"), {})


def test_the_batch_page_names_every_column() -> None:
    from selector.tables.answers import ANSWER_COLUMNS

    page = (ROOT / "docs" / "batch.md").read_text()
    assert [name for name in ANSWER_COLUMNS if f"`{name}`" not in page] == []
