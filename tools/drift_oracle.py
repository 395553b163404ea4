"""Compares what is read of an engine's code with what its running classes said.

    python tools/drift_oracle.py SOURCE static_capabilities.json

SOURCE is a wheel or folder of the same version. Prints how many attributes were read right, are
dynamic, or were read wrong, and each that is wrong; ends with 1 if any is.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selector.drift.reader import read_engine
from selector.drift.reading import Answer, Attribute, Backend, EngineReading

Verdict = tuple[str, str]
"""``right``, ``dynamic`` or ``wrong``, and why."""


def main(source: str, oracle: str) -> int:
    """Reads, compares and prints."""
    said = json.loads(Path(oracle).read_text(encoding="utf-8"))
    started = time.perf_counter()
    reading = read_engine("vllm", source, said["capabilities"])
    seconds = time.perf_counter() - started
    counts: Counter[str] = Counter()
    for name, attribute, verdict, why in compare(reading, said):
        counts[verdict] += 1
        if verdict == "wrong":
            print(f"wrong: {name}.{attribute}: {why}")
    total = sum(counts.values())
    kept = counts["right"] + counts["dynamic"]
    print(f"{reading.engine} {reading.version}: {total:,} attributes in {seconds:.1f} s: {counts}")
    print(f"{kept / max(total, 1):.1%} right or dynamic, {counts['wrong']} wrong")
    return 1 if counts["wrong"] else 0


def compare(reading: EngineReading, said: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Backend, attribute, verdict and why, for every attribute that was recorded."""
    for section, backends in (
        ("attention_backends", reading.backends),
        ("mla_prefill_backends", reading.prefill),
    ):
        read = {backend.name: backend for backend in backends}
        for name, recorded in said[section].items():
            parts = {"backend": recorded, "impl": recorded.get("impl") or {}}
            parts["builder"] = recorded.get("builder") or {}
            for role, part in parts.items():
                for attribute, want in part.get("attributes", {}).items():
                    got = _attribute(read.get(name), role, attribute)
                    verdict, why = judge(got, want, said["capabilities"])
                    yield f"{name} {role}", attribute, verdict, why


def _attribute(backend: Backend | None, role: str, name: str) -> Attribute | None:
    cls = backend.classes().get(role) if backend is not None else None
    return cls.attributes.get(name) if cls is not None else None


def judge(got: Attribute | None, want: dict[str, Any], capabilities: list[str]) -> Verdict:
    """Holds one attribute against what was recorded."""
    if got is None:
        return "wrong", "was not read"
    if not got.defined_in.endswith(f".{want['defined_in']}"):
        if not got.defined_in and not got.known:
            return "dynamic", "the defining class is not known"
        return "wrong", f"is defined in {want['defined_in']}, read: {got.defined_in}"
    verdict: Verdict = ("right", "")
    for capability in capabilities:
        answer = got.answer or got.by_capability[capability]
        for expected in _expected(want, capability):
            one = _judge_answer(answer, got, expected)
            if one[0] == "wrong":
                return one[0], f"on {capability}: {one[1]}"
            verdict = one if one[0] == "dynamic" else verdict
    return verdict


def _expected(want: dict[str, Any], capability: str) -> Iterator[Any]:
    for part in (want, want.get("under_batch_invariant", {})):
        if "by_capability" in part:
            yield part["by_capability"][capability]
        elif "true_for" in part:
            yield part["true_for"]
        elif "value" in part:
            yield part["value"]


def _judge_answer(answer: Answer, got: Attribute, expected: Any) -> Verdict:
    if answer.raises or (isinstance(expected, str) and expected.startswith("!")):
        raised = isinstance(expected, str) and expected.startswith(f"!{answer.raises}")
        return ("dynamic", "") if not answer.known or raised else ("wrong", f"raises: {expected}")
    read, known = spelled(json_of(answer.value)), spelled(json_of(expected))
    if got.asked and isinstance(known, list):
        asked = [one for one in map(spelled, json_of(got.asked)) if one in known]
        undecided = [spelled(one) for one in json_of(answer.undecided)]
        known = sorted((one for one in asked if one not in undecided), key=str)
        read = sorted(read, key=str) if isinstance(read, list) else read
    elif not answer.known:
        return "dynamic", ""
    if read != known:
        return "wrong", f"says {known}, read: {read}"
    return ("right", "") if answer.known else ("dynamic", "")


def json_of(value: Any) -> Any:
    """Tuples as lists, as in JSON."""
    return [json_of(part) for part in value] if isinstance(value, (list, tuple)) else value


def spelled(value: Any) -> Any:
    """A value as the recording spells it: names of members and dtypes alone."""
    if isinstance(value, list):
        return [spelled(part) for part in value]
    if not isinstance(value, str):
        return value
    value = value.replace("MultipleOf(base=", "MultipleOf(").removeprefix("MLADimensions")
    return re.sub(r"^(torch|[A-Z]\w+)\.(?=\w+$)", "", value)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
