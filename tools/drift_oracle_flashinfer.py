"""Compares what is read of FlashInfer's code with what its running functions said.

    python tools/drift_oracle_flashinfer.py SOURCE flashinfer_capabilities.json

SOURCE is a wheel or folder of the same version. Prints, for each kind of fact, how many were read
right, are dynamic, or were read wrong, and each that is wrong; ends with 1 if any is.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selector.devices import known_capabilities
from selector.drift.reader import read_engine
from selector.drift.reading import Answer, Operator

Verdict = tuple[str, str, str, str]
"""The kind of fact, its name, ``right``, ``dynamic`` or ``wrong``, and why."""

LISTS, RECORDS, REFUSALS = "lists of capabilities", "fields of MLA plans", "where a call raises"
CALLS = ("xqa", "xqa_mla", "fmha_v2_prefill_sm120", "fmha_v2_prefill_deepseek")
"""Functions whose architectures somebody wrote down by hand."""


def main(source: str, oracle: str) -> int:
    """Reads, compares and prints."""
    said = json.loads(Path(oracle).read_text(encoding="utf-8"))
    started = time.perf_counter()
    reading = read_engine("flashinfer", source, known_capabilities())
    seconds = time.perf_counter() - started
    known = {one.name: one for one in reading.operators}
    counts: Counter[tuple[str, str]] = Counter()
    for kind, name, verdict, why in (*lists(known, said), *plans(known, said)):
        counts[kind, verdict] += 1
        if verdict == "wrong":
            print(f"wrong: {name}: {why}")
    print(f"{reading.engine} {reading.version}: {len(known)} operators in {seconds:.1f} s")
    for kind in (LISTS, RECORDS, REFUSALS):
        shown = [f"{counts[kind, verdict]} {verdict}" for verdict in ("right", "dynamic", "wrong")]
        print(f"{kind}: {', '.join(shown)}")
    return 1 if any(verdict == "wrong" for _, verdict in counts) else 0


def lists(known: dict[str, Operator], said: dict[str, Any]) -> Iterator[Verdict]:
    """Every list of a decorated function, and of each backend of one that has a choice."""
    for one in said["decorated_attention_objects_introspected"]:
        name = f"{one['module']}.{one['name']}"
        got = known.get(name)
        if one.get("has_backend_choices"):
            for backend, declared in one["backends"].items():
                answer = got.backends.get(backend) if got is not None else None
                yield LISTS, f"{name} {backend}", *judge(answer, _dotted(declared["ccs"]))
        else:
            answer = got.accepts if got is not None else None
            yield LISTS, name, *judge(answer, _dotted(one.get("ccs") or one["any_cc"]))


def plans(known: dict[str, Operator], said: dict[str, Any]) -> Iterator[Verdict]:
    """Every field of the MLA plans, and the architectures that were written down by hand."""
    read = {
        str(one.features["backend_name"].value).lower(): one
        for one in known.values()
        if "backend_name" in one.features
    }
    for backend, fields in said["mla_plan_capabilities"].items():
        got = read.get(backend)
        for field, want in fields.items():
            answer = got.features.get(field) if got is not None else None
            yield RECORDS, f"{backend} {field}", *judge(answer, want)
    calls = {one: known[name] for name in known for one in CALLS if name.endswith(f".{one}")}
    for entry in said["entries"]:
        mla = entry["api"] == "BatchMLAPagedAttentionWrapper"
        if (mla or entry["api"] in CALLS) and entry["compute_capabilities"] is not None:
            got = read.get(entry["backend"]) if mla else calls.get(entry["api"])
            refused = got.refuses if got is not None else None
            name = f"{entry['api']} {entry['backend']}"
            yield from refusals(name, refused, entry["compute_capabilities"])


def judge(answer: Answer | None, want: Any) -> tuple[str, str]:
    """Holds one answer against what was recorded."""
    if answer is None:
        return "wrong", "was not read"
    if not answer.known:
        return "dynamic", ""
    if answer.raises or answer.value != want:
        return "wrong", f"says {want}, read: {answer.raises or answer.value}"
    return "right", ""


def refusals(name: str, refused: Any, written: Any) -> Iterator[Verdict]:
    """Each known architecture: refused where it is not among those written down, and only there."""
    for capability in known_capabilities():
        runs = any(_covers(one, capability) for one in _texts(written))
        if refused is None:
            yield REFUSALS, f"{name} {capability}", "wrong", "was not read"
        elif capability in refused:
            verdict = "wrong" if runs else "right"
            yield REFUSALS, f"{name} {capability}", verdict, "runs, read: raises"
        else:  # that it does not raise for certain is right, and otherwise not known
            yield REFUSALS, f"{name} {capability}", "right" if runs else "dynamic", ""


def _texts(written: Any) -> list[str]:
    return [written] if isinstance(written, str) else written


def _covers(text: str, capability: str) -> bool:
    """Whether ``10.x``, ``>=8.0`` or ``9.0 & CUDA>=12.3`` holds on an architecture."""
    first = text.split(" ")[0]
    if first.startswith(">="):
        return float(capability) >= float(first.removeprefix(">="))
    if first.endswith(".x"):
        return capability.split(".")[0] == first.removesuffix(".x")
    return capability == first


def _dotted(codes: list[int]) -> list[str]:
    return [f"{code // 10}.{code % 10}" for code in codes]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
