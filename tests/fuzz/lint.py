"""Bytes and mutated manifests: lint says what is wrong with them, soon and in little memory."""

from __future__ import annotations

import random
import re
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from selector.document import read_text
from selector.lint import lint
from selector.lint.fixing import mend
from selector.lint.many import check_bytes
from selector.lint.running import Selection
from selector.report.findings import finding_lines
from selector.report.sarif import sarif_log
from selector.report.text import paint
from selector.report.wording import Places

__all__ = ["LONGEST_S", "MOST_MIB", "Spent", "check", "inputs", "run"]

LONGEST_S, MOST_MIB = 2.0, 500

_ROOT = Path(__file__).parents[2]
_ODD = (
    "no", "yes", "on", "1.0", "12.10", "9:0", "016", "0x10", "1e9", ".inf", "~", "null", "true",
    "[]", "{}", "[", "]", "{", "}", ":", "-", "?", "|", ">", ">-", "#", "&a", "*a", "<<: *a", "!!x",
    "%YAML 1.1", "---", "...", '"', "'", '"\\u202e"', "\t", "\r", "\n", "\u2028", "\x85", "\ufeff",
    "\x00", "\x1b[31m", "漢", "😀", "any", "unset", "absent", ">=8.0", "12.x", "8.0..12.1", "sm120",
    "{min: 1, max: {field: index_topk}}", "{multiple_of: 0}", "{cases: []}", "99999999999999999999",
    "# attnsel: ignore", "# attnsel: ignore[CAP105] why", "# attnsel: ignore-file[CAP105] why",
    "# attnsel: ignore[CAP001,CAP105,x]", "overlay: x", "paged, paged", "a" * 5000, "[" * 60,
)  # fmt: skip


class Spent(NamedTuple):
    """What one input took, and how many findings it has."""

    seconds: float
    findings: int


def check(data: bytes) -> Spent:
    """Lints bytes in every way.

    Raises:
        AssertionError: a law is broken, or it took too long.
        Exception: lint has a fault; nothing is raised on purpose.
    """
    began = time.process_time()
    checked = check_bytes(data, "a.yaml", (), Selection())
    spent = time.process_time() - began
    assert spent < LONGEST_S, f"took {spent:.1f} s"
    found = [*checked.findings]
    assert found == sorted(set(found))
    lines = data.count(b"\n") + data.count(b"\r") + data.count(b"\xc2\x85") + 2
    for finding in found:
        assert finding.message, finding
        assert "\n" not in str(finding), finding
        assert 1 <= finding.line <= lines + data.count(b"\xe2\x80"), finding
        assert finding.column >= 1, finding
    assert paint(finding_lines(found, checked.texts, Places())).isascii() or found
    sarif_log(found, checked.texts, (), "1")
    return Spent(spent, len(found))


def mended_once(data: bytes) -> None:
    """Mends bytes, which must not read worse, and must have nothing left to mend."""
    before = read_text(data, "a.yaml")
    after = mend([("a.yaml", data)])
    if after.data["a.yaml"] == data:
        return
    assert (after.documents[0].tree is None) <= (before.tree is None)
    assert [*after.findings] == lint(read_text(after.data["a.yaml"], "a.yaml"))
    again = mend([("a.yaml", after.data["a.yaml"])])
    assert again.data == after.data, "mending twice changes more"


@cache
def _seeds(folder: str) -> tuple[bytes, ...]:
    """Manifests to begin with: small ones of the tests, or those that ship."""
    found = sorted(_ROOT.glob(folder))
    assert found
    return tuple(data for data in (path.read_bytes() for path in found) if len(data) < 200_000)


_GOOD, _BAD = "tests/manifests/good/*.yaml", "tests/manifests/bad/*.yaml"
_SHIPPED = "capabilities.yaml"


def inputs() -> SearchStrategy[bytes]:
    """Bytes of any kind, text of YAML's signs, and manifests with a few changes made in them."""
    signs = st.sampled_from([*_ODD, " ", "  ", "\n", "\n  ", "\n- ", ": ", ", ", "a", "backends"])
    text = st.lists(signs, max_size=40).map(lambda parts: "".join(parts).encode())
    places = st.integers(0, 2**20)
    mistakes = st.tuples(st.sampled_from((_word, _cut, _value, _twice, _lost, _swapped)), places)
    meanings = st.tuples(st.sampled_from((_alike, _alike, _alike, _twice, _lost)), places)
    odd = st.sampled_from(_ODD)

    def mutated(change: SearchStrategy[Any], folder: str) -> SearchStrategy[bytes]:
        changes = st.lists(st.tuples(change, odd), max_size=5)
        return st.builds(_mutated, st.just(folder), places, changes)

    some = [mutated(kind, folder) for folder in (_GOOD, _BAD) for kind in (mistakes, meanings)]
    shipped = mutated(meanings, _SHIPPED)
    return st.integers(0, 59).flatmap(
        lambda which: (
            shipped
            if which == 37
            else st.binary(max_size=300)
            if which < 3
            else text
            if which < 7
            else some[0]
            if which < 20
            else some[1]
            if which < 48
            else some[which % 2 + 2]
        )
    )


Change = Callable[[bytes, int, bytes], bytes]


def _mutated(folder: str, which: int, changes: list[tuple[tuple[Change, int], str]]) -> bytes:
    seeds = _seeds(folder)
    data = seeds[which % len(seeds)]
    for (change, place), odd in changes:
        data = change(data, place, odd.encode())
    return data


def _word(data: bytes, place: int, odd: bytes) -> bytes:
    """A word put in anywhere."""
    at = place % (len(data) + 1)
    return data[:at] + odd + data[at:]


def _cut(data: bytes, place: int, _: bytes) -> bytes:
    """A few characters lost."""
    at = place % (len(data) + 1)
    return data[:at] + data[at + 1 + place % 7 :]


def _value(data: bytes, place: int, odd: bytes) -> bytes:
    """Another value of a key."""
    lines = data.split(b"\n")
    row = place % len(lines)
    key, colon, _ = lines[row].partition(b": ")
    lines[row] = key + colon + odd
    return b"\n".join(lines)


def _twice(data: bytes, place: int, _: bytes) -> bytes:
    """A line or two doubled."""
    lines = data.split(b"\n")
    row = place % len(lines)
    part = lines[row : row + 1 + place % 2]
    return b"\n".join([*lines[:row], *part, *lines[row:]])


def _lost(data: bytes, place: int, _: bytes) -> bytes:
    """A line lost."""
    lines = data.split(b"\n")
    del lines[place % len(lines)]
    return b"\n".join(lines)


def _swapped(data: bytes, place: int, _: bytes) -> bytes:
    """Two lines swapped."""
    lines = data.split(b"\n")
    row = place % len(lines)
    lines[row : row + 2] = lines[row : row + 2][::-1]
    return b"\n".join(lines)


_ALIKE = (
    (re.compile(rb"\btrue\b|\bfalse\b"), (b"true", b"false", b"any")),
    (
        re.compile(rb"(?<=[\[ ])[0-9]+(?=[\],}\n])"),
        (b"0", b"1", b"64", b"100", b"128", b"576", b"4096"),
    ),
    (
        re.compile(rb'"[0-9.<>=x]+"'),
        (b'"9.0"', b'"12.0"', b"12.x", b'">=8.0"', b'"<9.0"', b'"8.0..12.1"', b'"7.5"', b'"10.3"'),
    ),
    (
        re.compile(rb"\b(mha|mqa|dense_mha|masked_mha|sparse_mqa)\b"),
        (b"mha", b"sparse_mqa", b"dense_mha"),
    ),
    (
        re.compile(rb"(?<=: )(any|\[\])"),
        (b"any", b"[]", b"[unset]", b"{min: 8}", b"{multiple_of: 16}"),
    ),
    (
        re.compile(rb"\b(bfloat16|float16|fp8|auto)\b"),
        (b"bfloat16", b"float16", b"fp8", b"auto", b"float32"),
    ),
    (
        re.compile(rb"\bwhen: \{[^{}]*\}"),
        (b"when: {}", b"when: {sparse: true}", b"when: {query_len: {max: 1}}"),
    ),
)


def _alike(data: bytes, place: int, _: bytes) -> bytes:
    """A value in place of another of its kind: a manifest that means something else."""
    pattern, words = _ALIKE[place % len(_ALIKE)]
    found = [*pattern.finditer(data)]
    if not found:
        return data
    match = found[place // 7 % len(found)]
    word = words[place // 1000 % len(words)]
    return data[: match.start()] + word + data[match.end() :]


def run(count: int, number: int, say: Callable[[str], object] = print) -> bool:
    """Lints so many inputs and mends some; whether all went well."""
    spent: list[tuple[float, bytes]] = []
    dice = random.Random(number)
    kinds = {"clean": 0, "with findings": 0}

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=False,
        suppress_health_check=[*HealthCheck],
    )
    @given(inputs())
    def every(data: bytes) -> None:
        took = check(data)
        kinds["with findings" if took.findings else "clean"] += 1
        spent.append((took.seconds, data[:300]))
        if len(spent) > 2000:
            spent[:] = sorted(spent, reverse=True)[:5]
        if sum(kinds.values()) % 1000 == 0:
            say(f"{sum(kinds.values()):,} manifests")
        if dice.random() < 0.1:
            mended_once(data)

    with _memory(say) as within:
        every()
    say(f"{sum(kinds.values()):,} manifests, seed {number}: {kinds}")
    for seconds, data in sorted(spent, reverse=True)[:3]:
        say(f"  {seconds:.2f} s  {data[:100]!r}")
    return within()


@contextmanager
def _memory(say: Callable[[str], object]) -> Iterator[Callable[[], bool]]:
    """Tells whether the whole process stayed within the bound."""

    def within() -> bool:
        mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        say(f"  at most {mib:,.0f} MiB")
        return mib <= MOST_MIB

    yield within
