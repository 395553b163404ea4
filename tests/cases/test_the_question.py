"""The question that started the project, and what happens when its answer is tampered with."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import msgspec
import pytest

from selector import Layer, ManifestError, Outcome, Phase, Request, Selector
from selector.binding import Bound
from selector.loading import loads
from selector.models import load_model, shard
from selector.resources import resource

SM120 = "flashinfer_sparse_mla_sm120"
LENGTHS = (1, 127, 128, 129, 2047, 2048, 2049, 3300, 32768)
CACHED = (0, 1, 5000)
MANIFEST = resource("capabilities.yaml")


def glm() -> Layer:
    (group,) = shard(load_model("GLM-5.2-FP8"), 8).groups
    return group.layer.replace(pp_size=2)


def bound(selector: Selector) -> Bound:
    return selector.bind("RTX PRO 6000 Blackwell", glm())


@pytest.mark.parametrize(("query", "cached"), list(itertools.product(LENGTHS, CACHED)))
def test_sm120_runs_both_phases_and_never_densely(query: int, cached: int) -> None:
    answer = bound(Selector.load()).resolve(query, query + cached)
    assert (answer.prefill.backend, answer.prefill.path) == (SM120, "sparse_mqa")
    assert (answer.decode.backend, answer.decode.path) == (SM120, "sparse_mqa")
    assert answer.phase is (Phase.DECODE if query <= 128 else Phase.PREFILL)


def test_the_dense_path_is_shown_as_pinned_with_its_reason() -> None:
    (off,) = bound(Selector.load()).resolve(3300, 3300).off
    assert (off.backend, off.path, off.outcome) == (SM120, "dense_mha", Outcome.PINNED)
    assert "https://github.com/vllm-project/vllm/pull/51395" in off.evidence
    assert "top-k" in off.rationale
    line = MANIFEST.read_text().splitlines()[off.position.line - 1]
    assert line.strip() == "dense_prefill: false"


def test_every_other_candidate_says_what_was_seen_and_what_is_allowed() -> None:
    answer = bound(Selector.load()).resolve(3300, 3300)
    lines = MANIFEST.read_text().splitlines()
    stated = re.findall(r"^  - name: (\w+)$", MANIFEST.read_text(), re.MULTILINE)
    assert [c.backend for c in answer.candidates] == stated
    for candidate in answer.candidates:
        if candidate.backend == SM120:
            continue
        assert candidate.prefill.outcome is Outcome.UNSUPPORTED
        assert candidate.decode.outcome is Outcome.UNSUPPORTED
        assert candidate.backend in lines[candidate.position.line - 1]
        for rejection in (*candidate.prefill.rejections, *candidate.decode.rejections):
            assert rejection.position.line > 0
            assert rejection.code == "PHASE" or (rejection.observed and rejection.allowed)


@pytest.mark.parametrize(("query", "cached"), list(itertools.product(LENGTHS, CACHED)))
def test_flipping_the_pin_in_memory_brings_the_crash_back(query: int, cached: int) -> None:
    selector = Selector.load()
    entries = dict(selector.manifest.entries)
    entries[SM120] = msgspec.structs.replace(entries[SM120], dense_prefill=True)
    flipped = Selector(msgspec.structs.replace(selector.manifest, entries=entries))
    answer = bound(flipped).resolve(query, query + cached)
    crashes = query > 128 and query + cached <= 2048
    assert answer.prefill.path == ("dense_mha" if crashes else "sparse_mqa")
    assert (answer.decode.backend, answer.decode.path) == (SM120, "sparse_mqa")
    assert answer.off == ()


def test_a_layer_that_forbids_dense_prefill_keeps_even_a_flipped_pin_sparse() -> None:
    selector = Selector.load()
    entries = dict(selector.manifest.entries)
    entries[SM120] = msgspec.structs.replace(entries[SM120], dense_prefill=True)
    flipped = Selector(msgspec.structs.replace(selector.manifest, entries=entries))
    answer = flipped.bind("12.0", glm().replace(dense_prefill=False)).resolve(2048, 2048)
    assert answer.prefill.path == "sparse_mqa"
    assert [off.outcome for off in answer.off] == [Outcome.UNSUPPORTED]


def _entry_lines() -> tuple[list[str], int, int]:
    """The shipped manifest, and the first and last line of the SM120 entry (from 0)."""
    lines = MANIFEST.read_text().splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if f"- name: {SM120}" in line)
    ends = (i for i in range(start + 1, len(lines)) if lines[i].startswith(("  - name", "joint")))
    return lines, start, next(ends)


def _edited(change: str) -> tuple[str, int]:
    """The shipped manifest with one edit of the SM120 entry, and the line the finding must name."""
    lines, start, end = _entry_lines()
    dense = next(i for i in range(start, end) if "dense_prefill: false" in lines[i])
    rationale = next(i for i in range(start, end) if "rationale:" in lines[i])
    after = next(i for i in range(rationale + 1, end) if lines[i].startswith("    evidence"))
    if change == "flipped":
        lines[dense] = "    dense_prefill: true\n"
        return "".join(lines), dense + 1
    if change == "left out":
        del lines[dense]
        return "".join(lines), start + 1
    text = {"missing": [], "empty": ['    rationale: ""\n'], "blank": ["    rationale: '  '\n"]}
    lines[rationale:after] = text[change]
    return "".join(lines), (start if change == "missing" else rationale) + 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("flipped", "CAP023"),
        ("left out", "CAP021"),
        ("missing", "CAP022"),
        ("empty", "CAP022"),
        ("blank", "CAP022"),
    ],
)
def test_the_file_is_refused_at_its_line(change: str, code: str, tmp_path: Path) -> None:
    text, line = _edited(change)
    path = tmp_path / "capabilities.yaml"
    path.write_text(text)
    with pytest.raises(ManifestError) as caught:
        Selector.load(path)
    (finding,) = caught.value.findings
    assert (finding.code, finding.line) == (code, line)
    assert "dense_prefill" in f"{finding}"
    assert "\n" not in str(finding)


def test_the_unedited_file_is_accepted() -> None:
    assert loads(MANIFEST.read_text()).entries[SM120].dense_prefill is False


def test_a_dense_path_under_another_name_is_gated_too() -> None:
    selector = Selector.load()
    entries = dict(selector.manifest.entries)
    entry = entries[SM120]
    renamed = tuple(msgspec.structs.replace(rule, path="mha") for rule in entry.prefill_paths[:1])
    paths = (*renamed, *entry.prefill_paths)
    entries[SM120] = msgspec.structs.replace(entry, prefill_paths=paths)
    changed = Selector(msgspec.structs.replace(selector.manifest, entries=entries))
    assert bound(changed).resolve(2048, 2048).prefill.path == "sparse_mqa"


def test_what_is_unknown_of_one_request_is_unknown_for_its_batch() -> None:
    """With heads unknown, 200 new tokens may be a decode; then 1,000 alone may run densely."""
    fields = {k: v for k, v in glm().fields.items() if k not in ("num_heads", "gqa_group")}
    requests = [Request(1000, 1000), Request(200, 5000)]
    first, second = Selector.load().bind("9.0", Layer(fields)).resolve_batch(requests)
    assert (first.prefill.path, set(first.prefill.paths)) == (None, {"dense_mha", "sparse_mqa"})
    assert (second.phase, second.prefill.path) == (None, "sparse_mqa")
    for heads, path in ((8, "sparse_mqa"), (64, "dense_mha")):
        layer = Layer(fields).replace(num_heads=heads)
        known = Selector.load().bind("9.0", layer).resolve_batch(requests)
        assert known[0].prefill.path == path


def test_an_answer_that_breaks_an_invariant_says_so(tmp_path: Path) -> None:
    """An overlay may claim too much; the promise beside the facts still holds the answer to it."""
    overlay = tmp_path / "local.yaml"
    overlay.write_text(
        "attnsel: 1\noverlay: local\nbackends:\n  - {name: flashinfer_fa2, accepts: {sink: any}}\n"
    )
    (layer, _) = (group.layer for group in load_model("gpt-oss-20b").groups)
    answer = Selector.load(overlays=[overlay]).bind("9.0", layer).resolve(1, 1)
    assert answer.decode.backend == "flashinfer_fa2"
    assert any('breaks the invariant "sinks are never ignored"' in note for note in answer.notes)
    assert Selector.load().bind("9.0", layer).resolve(1, 1).notes == ()
