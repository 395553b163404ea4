"""A small manifest, and the command line run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SMALL = Path(__file__).with_name("small.yaml")
GQA = (
    "head_size=128,dtype=bfloat16,kv_cache_dtype=auto,attn_type=decoder,num_heads=32,num_kv_heads=8"
)
SPARSE = (
    "mla=true,sparse=true,kv_lora_rank=512,qk_rope_head_dim=64,index_topk=2048,dtype=bfloat16,"
    "kv_cache_dtype=fp8_ds_mla,attn_type=decoder,num_heads=8,num_kv_heads=1,dense_prefill=true"
)


class Ran(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line on stderr."""
        assert self.err.startswith("attnsel: ")
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err.removeprefix("attnsel: ").rstrip("\n")


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    from cli.main import main

    monkeypatch.chdir(SMALL.parent)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.delenv("ATTNSEL_TRACEBACK", raising=False)

    def run_main(*arguments: object) -> Ran:
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        return Ran(code, *capsys.readouterr())

    return run_main


@pytest.fixture
def small() -> list[str]:
    """The flag for the small manifest."""
    return ["--manifest", str(SMALL)]


def line_of(text: str, after: str = "", file: Path = SMALL) -> int:
    """The number of the first line that holds ``text``, after the first that holds ``after``."""
    lines = file.read_text("utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if after in line)
    return next(i for i in range(start, len(lines)) if text in lines[i]) + 1
