"""The front door: load a manifest, bind it, resolve requests."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from selector import Device, Facts, Layer, ManifestError, Policy, Request, Selector
from selector.errors import AttnselError, ContradictionError, UnknownDeviceError, ValueRefusedError
from selector.plan import Plan

Build = Any  # the fixture of tests/conftest.py
FACTS = {"mylib": {"type": "version", "description": "A library."}}
FACTS |= {"probe": {"type": "boolean", "description": "A switch."}}


# -- loading -------------------------------------------------------------------------------------


def test_the_shipped_manifest_is_the_default() -> None:
    assert Selector.load().manifest.ref.file.endswith("capabilities.yaml")
    assert len(Selector.load().manifest.entries) > 1


def test_a_file_with_overlays(build: Build, tmp_path: Path) -> None:
    base, overlay = tmp_path / "base.yaml", tmp_path / "local.yaml"
    base.write_text(json.dumps(build.tree(build.entry("one"), build.entry("two"))))
    first = {"order": ["two"], "reason": "Faster here."}
    overlay.write_text(json.dumps({"attnsel": 1, "overlay": "local", "priorities": [first]}))
    assert Selector.load(base).bind("9.0", build.layer()).resolve(1, 1).decode.backend == "one"
    local = Selector.load(base, overlays=[overlay]).bind("9.0", build.layer()).resolve(1, 1)
    assert (local.decode.backend, local.decode.reason) == ("two", "Faster here.")


def test_what_an_engine_claims(build: Build, tmp_path: Path) -> None:
    claim = {"source": "engine.py", "accepts": {"head_size": "any"}}
    path = tmp_path / "claims.yaml"
    entry = build.entry(accepts={"head_size": [64]}, claimed=claim)
    path.write_text(json.dumps(build.tree(entry)))
    for as_claimed, backend in ((False, None), (True, "one")):
        selector = Selector.load(path, as_claimed=as_claimed)
        assert selector.bind("9.0", build.layer()).resolve(1, 1).decode.backend == backend


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"none\.yaml"):
        Selector.load(tmp_path / "none.yaml")
    with pytest.raises(ManifestError, match=r"^mine\.yaml:1:1: CAP001 file is empty"):
        Selector.loads("", "mine.yaml")


# -- binding -------------------------------------------------------------------------------------


def test_a_manifest_that_is_none_says_which_was_meant(tmp_path: Path) -> None:
    said = r"^vllm-0\.33: no such file or directory; did you mean vllm-0\.33\.0\?$"
    for load in (Selector.load, Plan.load):
        with pytest.raises(FileNotFoundError, match=said) as caught:
            load("vllm-0.33")
        assert isinstance(caught.value, AttnselError)
    with pytest.raises(FileNotFoundError) as caught:
        Selector.load(overlays=[tmp_path / "vllm-0.33"])
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (({"platform": "cuda"}, Layer({})), "device is a dict; it takes a Device or a name such"),
        ((None, Layer({})), "device is a NoneType; it takes a Device"),
        (("H100", {"head_size": 64}), r"layer is a dict; it takes a Layer: Layer.of\(\*\*fields\)"),
        (("H100", "llama-3.1-8b"), "layer is a str; it takes a Layer"),
        (("H100", Layer({}), {"torch": "2.9"}), "facts is a dict; it takes Facts, such as"),
        (("H100", Layer({}), {}), "facts is a dict; it takes Facts, such as"),
        (("H100", Layer({}), None, "fa2"), "policy is a str; it takes a Policy"),
    ],
)
def test_what_is_of_another_type_is_one_line(given: tuple[Any, ...], said: str) -> None:
    with pytest.raises(TypeError, match=f"^{said}"):
        Selector.load().bind(*given)


def test_a_device_is_given_by_architecture_product_or_value(build: Build) -> None:
    selector = build.selector(build.entry(accepts={"capability": "9.0"}))
    for device in ("9.0", "sm90", "sm_90a", "H200", "NVIDIA H100 80GB HBM3", Device("cuda", "9.0")):
        answer = selector.bind(device, build.layer()).resolve(1, 1)
        assert answer.decode.backend == "one"
        assert answer.device.capability == "9.0"
    assert selector.bind("cpu", build.layer()).resolve(1, 1).decode.backend is None
    with pytest.raises(UnknownDeviceError, match="H2000"):
        selector.bind("H2000", build.layer())


@pytest.mark.parametrize(
    ("arch", "notes"),
    [
        ("9.0", ()),
        ("12.5", ("compute capability 12.5 is not known here; the newest known is 12.1",)),
        ("13.0", ("compute capability 13.0 is not known here; the newest known is 12.1",)),
        ("cpu", ()),
    ],
)
def test_an_architecture_of_tomorrow_is_refused_with_a_note(
    build: Build, arch: str, notes: tuple[str, ...]
) -> None:
    selector = build.selector(build.entry(accepts={"capability": ["9.x", "12.0", "absent"]}))
    bound = selector.bind(arch, build.layer())
    for answer in (bound.resolve(1, 1), *bound.resolve_batch([Request(1, 1)])):
        assert answer.notes == notes
        assert answer.decode.backend == (None if notes else "one")
    if notes:
        (rejection,) = answer.candidates[0].decode.rejections
        assert (rejection.observed, rejection.allowed) == (arch, "9.x, 12.0, absent")
        assert rejection.nearest == "12.0"


def test_a_spelling_of_a_known_capability_is_known(build: Build) -> None:
    answer = build.selector().bind(Device("cuda", "sm_120a"), build.layer()).resolve(1, 1)
    assert (answer.device.capability, answer.notes) == ("12.0", ())


def test_what_cannot_be_bound(build: Build) -> None:
    space = [{"require": {"tp_size": [1, 2]}, "reason": "No more ranks."}]
    selector = build.selector(space=space, facts=FACTS)
    with pytest.raises(ContradictionError, match="No more ranks"):
        selector.bind("9.0", build.layer(tp_size=4))
    for facts in ({"mylib": "abc"}, {"mylib": True}, {"probe": "yes"}, {"probe": 1}):
        with pytest.raises(ValueRefusedError, match=f"^{next(iter(facts))} "):
            selector.bind("9.0", build.layer(), Facts(facts))
    with pytest.raises(ValueRefusedError, match="deny maps backends to reasons"):
        selector.bind("9.0", build.layer(), policy=Policy(["one"]))  # type: ignore[arg-type]


def test_facts_of_other_programs_are_left_alone(build: Build) -> None:
    facts = Facts({"numpy": "not a version", "gpu_count": True})
    assert build.selector().bind("9.0", build.layer(), facts).resolve(1, 1).decode.conditions == ()


def test_errors_are_one_family(build: Build) -> None:
    bound = build.selector().bind("9.0", build.layer())
    for wrong in (
        lambda: bound.resolve(0, 1),
        lambda: bound.resolve(2, 1),
        lambda: build.selector().bind("", build.layer()),
        lambda: Layer.of(sinc=True),
        lambda: Layer.of(sink="maybe"),
    ):
        with pytest.raises(AttnselError) as caught:
            wrong()
        assert isinstance(caught.value, ValueError | LookupError)
        assert len(str(caught.value).splitlines()) == 1


# -- purity --------------------------------------------------------------------------------------


def test_what_the_caller_changes_later_changes_nothing(build: Build) -> None:
    selector = build.selector(
        build.entry(requires={"mylib": ">=2"}), build.entry("two"), facts=FACTS
    )
    facts: dict[str, Any] = {"mylib": "2.1"}
    deny: dict[str, str] = {}
    fields = dict(build.layer().fields)
    bound = selector.bind("9.0", Layer(fields), Facts(facts), Policy(deny))
    answer = bound.resolve(1, 1)
    assert answer.decode.backend == "one"
    facts["mylib"] = "1.0"
    deny["one"] = "too late"
    fields["head_size"] = 7
    assert bound.resolve(1, 1) == answer
    again = selector.bind("9.0", Layer(fields), Facts(facts), Policy(deny)).resolve(1, 1)
    assert again.decode.backend == "two"


def test_answers_do_not_depend_on_what_was_asked_before_or_beside() -> None:
    selector = Selector.load()
    layer = Layer.of(head_size=128, dtype="bfloat16", kv_cache_dtype="auto", attn_type="decoder")
    questions = [
        (arch, query, seq)
        for arch in ("8.0", "9.0", "10.0", "12.0", "13.0", "cpu")
        for query, seq in ((1, 1), (1, 4096), (3300, 3300), (None, None))
    ]

    def ask(question: tuple[str, int | None, int | None]) -> bytes:
        arch, query, seq = question
        return repr(selector.bind(arch, layer).resolve(query, seq)).encode()

    alone = [ask(q) for q in questions]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, questions * 4)) == alone * 4
    assert [ask(q) for q in reversed(questions)] == alone[::-1]
