"""Rules about what a manifest says: their examples, their words, and where they are silent."""

from __future__ import annotations

import random
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from selector.devices import architectures
from selector.document import read_document, read_text
from selector.lint import Selection, find_rule, lint
from selector.lint.catalogue import selected
from selector.lint.context import Context
from selector.lint.rules.cap102_revisit_now import _has_choice, _waits
from selector.lint.rules.cap110_impossible_requirement import _is_impossible
from selector.lint.statements import Place, points_somewhere, predicates, sources
from selector.loading import read

MANIFESTS = Path(__file__).parents[2] / "manifests"
CODES = [f"CAP{number}" for number in range(101, 113)]
BASE: dict[str, Any] = {
    "attnsel": 1,
    "name": "example",
    "version": "1",
    "facts": {"flashinfer-python": {"type": "version", "description": "The distribution."}},
    "fields": {
        "wanted": {"type": "integer", "role": "context", "description": "What is asked for."}
    },
    "priorities": [{"order": ["paged"], "reason": "There is only one."}],
}
ENTRY: dict[str, Any] = {
    "name": "paged",
    "source": "https://example.org/paged",
    "mla": False,
    "sparse": False,
    "accepts": {
        "platform": ["cuda"],
        "capability": ["9.0", "12.0"],
        "dtype": ["bfloat16"],
        "kv_cache_dtype": ["auto"],
        "head_size": [64, 80, 128],
        "block_size": "any",
        "attn_type": ["decoder"],
        "sink": "any",
    },
    "phases": {"prefill": {}, "decode": {}},
    "decode_threshold": 1,
    "prefill_paths": [{"path": "mha", "reason": "The only way."}],
}


def whole(snippet: str) -> str:
    """The manifest that a part of one stands for: a section, rules of one, or keys of an entry."""
    part = yaml.safe_load(snippet)
    tree = {**BASE}
    if "first_match" in part:
        part = {"derive": {"version_of_fa": {"source": "fa_utils.py", **part}}}
    if not {*part} & {"derive", "priorities", "backends"}:
        part = {"backends": [part]}
    own = part.get("backends", [{}])[0]
    if "derive" in part or "priorities" in part:  # what may be asked of an example's own values
        tree["derive"] = {"fa_version": {"source": "x.py", "first_match": [{"value": 3}]}}
    accepts = {**ENTRY["accepts"], **own.get("accepts", {})}
    sparse = {"sparse": True, "prefill_paths": [{"path": "sparse_mqa", "reason": "The only way."}]}
    more = sparse if "dense_prefill" in own else {}
    entry = {**ENTRY, **more, **own, "name": "paged", "accepts": accepts}
    if any("qk_nope_head_dim" in str(value) for value in part.values()):
        entry["mla"] = True
        for rule in entry.get("constraints", ()):
            rule.update(code="DIMS", reason="Its kernels are built for these.")
    tree = {**tree, **part, "backends": [entry]}
    return yaml.safe_dump(tree, sort_keys=False)


def only(code: str) -> Selection:
    return Selection(select=selected([code]))


@pytest.mark.parametrize("code", CODES)
def test_the_examples_of_a_rule_are_what_it_finds_and_what_it_does_not(code: str) -> None:
    rule = find_rule(code)
    for example, is_bad in ((rule.bad, True), (rule.good, False)):
        document = read_text(whole(example), "m.yaml")
        assert [str(f) for f in read(document)[1].findings] == []
        found = lint(read_text(whole(example), "m.yaml"), selection=only(code))
        assert bool(found) is is_bad, [*map(str, found)]
        assert {f.code for f in found} <= {code}


def messages(name: str, code: str) -> list[str]:
    path = MANIFESTS / "bad" / f"{name}.yaml"
    found = lint(read_document(path), selection=only(code))
    return [str(f).removeprefix(f"{path}:").replace(str(path), "m.yaml") for f in found]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "cap101-rationale-copied-with-its-link",
            "29:16: CAP101 `rationale` is copied from sparse_mla (m.yaml:11); "
            "say what holds of this entry, or share the words by an alias",
        ),
        (
            "cap101-rationale-that-leaves-all-to-its-link",
            "11:16: CAP101 `rationale` says only that it is off; "
            "say what goes wrong otherwise, and where that can be read",
        ),
        (
            "cap102-own-version",
            "12:19: CAP102 `revisit_when` waits for vLLM 0.34, and the manifest's own version says "
            "0.34.1; look again: lift what it keeps off, or say what is waited for now",
        ),
        (
            "cap103-source-is-the-code",
            '7:13: CAP103 nothing in "the code of FlashInfer" can be looked up; '
            "name a link, or a release with the file, class or function",
        ),
        (
            "cap104-run-elsewhere",
            "21:18: CAP104 paged was run on 9.0, and also accepts 12.0 and 12.1; "
            "run `attnsel certify` there too, or link a report in `evidence`",
        ),
        (
            "cap105-accepts-from-10-on",
            "12:19: CAP105 capability >=10.0 has no upper end; today it takes 10.0, 10.3, 10.7, "
            "11.0, 12.0 and 12.1, tomorrow whatever comes; "
            'list what it was made for, or close it: "10.0..10.7"',
        ),
        (
            "cap106-family-accepts-wide-heads",
            "12:20: CAP106 the members of 8.x differ in shared memory (99 KiB on 8.6 and 8.9, "
            "163 KiB on 8.0 and 8.7), and head sizes above 198 are taken on 8.6 and 8.9 as on the "
            "others; list the members, and the head sizes of each by `cases`",
        ),
        (
            "cap107-constraint-in-other-words",
            "21:9: CAP107 this constraint says what that of line 20 says; remove one",
        ),
        (
            "cap108-under-one-condition",
            "21:9: CAP108 capability must be 12.0 here and 9.0 by line 20: together they refuse "
            "every layer with sink true; correct one, or say in `accepts` that it is refused",
        ),
        (
            "cap110-apart",
            '12:23: CAP110 no release of mylib satisfies ">=2,<1"; '
            "correct the versions; all parts must hold at once",
        ),
        (
            "cap111-derived-list-is-shorter",
            "9:9: CAP111 dense_shape lists 2 combinations of sizes, 2 of which mla lists too "
            "(m.yaml:29), which also has qk_nope_head_dim 256, v_head_dim 256; "
            "add it here, take it out there, or share one list by an alias",
        ),
        (
            "cap112-wish-and-default",
            "11:40: CAP112 version_of_fa is the same here as by line 12 on 10.0, 10.3 and 10.7; "
            "here it is so on 11.0, 12.0 and 12.1 too, there it is not; "
            "make both the same, or say in a comment why they differ",
        ),
    ],
)
def test_what_a_person_reads(name: str, said: str) -> None:
    assert messages(name, name[:6].upper()) == [said]


def test_a_value_that_is_never_met_names_those_that_are() -> None:
    (said,) = messages("cap109-derived-value-that-is-never-given", "CAP109")
    assert said.endswith(
        "CAP109 version_of_fa is never 4; its rules give 2 and 3; "
        "compare with one of these, or add a rule to `derive: version_of_fa`"
    )


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("vllm 0.34", [("vllm", "", "0.34")]),
        ("flashinfer-python >= 0.7.4", [("flashinfer-python", "", "0.7.4")]),
        ("flashinfer-python>=0.7.4 ships it", [("flashinfer-python", "", "0.7.4")]),
        ("torch 2.13, and FlashInfer v0.8", [("torch", "", "2.13"), ("FlashInfer", "", "0.8")]),
        ("when FlashInfer (>= 0.8) is out", [("FlashInfer", "", "0.8")]),
        ("vLLM later than 0.33.0", [("vLLM", "> ", "0.33.0")]),
        ("after vLLM 0.33.0", [("vLLM", "> ", "0.33.0")]),
        ("torch > 2.12", [("torch", "> ", "2.12")]),
        ("a dense path for 12.x ships.", []),
        ("somebody measures it", []),
    ],
)
def test_what_is_waited_for(text: str, waits: list[tuple[str, str, str]]) -> None:
    assert [(name, later, str(v)) for name, later, v in _waits(text)] == waits


def test_or_later_is_no_choice() -> None:
    assert _has_choice("torch 2.13 or vllm 0.34")
    assert not _has_choice("torch 2.13 or later and vllm 0.34")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It crashes: https://example.org/1", True),
        ("vLLM PR #51395", True),
        ("crashed in vLLM 0.28.0", True),
        ("csrc/fmha.cu refuses it", True),
        ("AttentionImplBase says yes", True),
        ("MLAAttention never asks", True),
        ("read in fa_utils.get_flash_attn_version", True),
        ("commit 001f694a", True),
        ("Only the top-k path exists on 12.x.", False),
        ("FlashInfer does not do that, e.g. on 12.0", False),
        ("dense_prefill crashes, and so does head_size 256", False),
    ],
)
def test_what_can_be_looked_up(text: str, found: bool) -> None:
    assert points_somewhere(text, {"dense_prefill", "head_size"}) is found


def test_an_impossible_requirement_is_one_that_no_release_satisfies() -> None:
    """Held against every release of a grid, for specifiers whose versions lie inside it."""
    drawn = random.Random(7)
    numbers = [0, 1, 2, 3]
    grid = ["{}.{}".format(*v) for v in product(range(6), range(6))]
    grid += [f"{v}.{tail}" for v in grid for tail in ("0.1", "1", "9", "0.0.1")]
    seen = set()
    for _ in range(600):
        parts = []
        for _ in range(drawn.choice([1, 2, 2, 3])):
            op = drawn.choice([">=", ">", "<", "<=", "==", "!=", "~="])
            version = f"{drawn.choice(numbers)}.{drawn.choice(numbers)}"
            wild = op in ("==", "!=") and drawn.random() < 0.4
            parts.append(f"{op}{version}{'.*' if wild else ''}")
        text = ",".join(parts)
        satisfied = next(SpecifierSet(text).filter(grid), None)
        assert _is_impossible(text) is (satisfied is None), text
        seen.add(satisfied is None)
    assert seen == {True, False}


@pytest.mark.parametrize("text", ["===1.0", ">=2.0rc1,<2.0rc3", "==1.0+cu130,!=1.0", ">1.0.post1"])
def test_specifiers_of_unusual_versions_are_not_judged(text: str) -> None:
    assert not _is_impossible(text)


def context_of(path: Path) -> Context:
    manifest, document = read(read_document(path))
    assert manifest is not None
    return Context(document, manifest)


def test_predicates_are_told_apart_by_what_they_do() -> None:
    stated = [*predicates(context_of(MANIFESTS / "good" / "everything.yaml"))]
    assert {one.place for one in stated} >= {*Place} - {Place.CLAIMED}
    claimed = [one for one in stated if one.place is Place.CLAIMED]
    assert [(one.field, one.value, one.name) for one in claimed] == [
        ("capability", ">=10.0", "sparse_mla")
    ]
    lines = (MANIFESTS / "good" / "everything.yaml").read_text("utf-8").split("\n")
    for one in stated:
        if isinstance(one.value, str):
            assert one.value in lines[one.at.line - 1][one.at.column - 1 :]


def test_every_source_is_seen_once_though_anchors_repeat_it() -> None:
    found = [*sources(context_of(MANIFESTS.parents[1] / "manifests" / "vllm-0.33.0.yaml"))]
    assert len({said.at for said in found}) == len(found) > 300


def test_the_shared_memory_of_every_cuda_architecture_is_known() -> None:
    known = {
        a["capability"]: a.get("shared_memory_kib") for a in architectures() if a["capability"]
    }
    assert None not in known.values()
    assert (known["8.0"], known["8.6"], known["9.0"], known["12.0"]) == (163, 99, 227, 99)
    assert known["12.0"] == known["12.1"]


@pytest.mark.parametrize("name", ["capabilities.yaml", "manifests/vllm-0.33.0.yaml"])
def test_what_is_shipped_is_clean(name: str) -> None:
    chosen = Selection(select=selected(["CAP10", "CAP11"]))
    assert lint(read_document(MANIFESTS.parents[1] / name), selection=chosen) == []


def test_heads_that_fit_no_member_are_told_of_the_smaller_ones() -> None:
    """Those on the largest member are its kernel's business: the family is what is wrong."""
    path = MANIFESTS / "bad" / "cap106-family-accepts-wide-heads.yaml"
    text = path.read_text("utf-8").replace("[64, 128, 256]", "[64, 128, 256, 512]")
    (found,) = lint(read_text(text, "m.yaml"), selection=only("CAP106"))
    assert "head sizes above 198 are taken on 8.6 and 8.9 as on the others" in found.message


@pytest.mark.parametrize("part", ["a", "Aa", "A a", "a.", "_", "1.", "a ", "after ", "a version "])
def test_long_texts_are_read_soon(part: str) -> None:
    text = part * (200_000 // len(part))
    begin = time.process_time()
    points_somewhere(text)
    list(_waits(text))
    assert time.process_time() - begin < 1
