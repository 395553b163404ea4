"""The reader of FlashInfer, on a small package of its shape, and entries held against it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from selector.drift.engines.flashinfer import READER
from selector.drift.modules import Modules
from selector.drift.operators import compare_operators
from selector.drift.reading import Answer, EngineReading, Operator
from selector.drift.sources import open_source
from selector.loading import load, loads
from selector.values import Finding, Severity

from .conftest import write_package, write_wheel

CAPABILITIES = ("7.5", "8.0", "9.0", "10.0", "12.0", "12.1", "99.0")
SHIPPED = Path(__file__).parents[3] / "capabilities.yaml"

UTILS = """
import functools
import torch


def supported_compute_capability(supported_ccs):
    def decorator(func):
        func._supported_ccs = set(supported_ccs)
        return func
    return decorator


def experimental_backend(checker):
    checker.is_experimental = True
    return checker


def backend_requirement(backend_checks, common_check=None, heuristic_func=None):
    def decorator(func):
        return func
    return decorator


@functools.cache
def get_compute_capability(device):
    properties = torch.cuda.get_device_properties(device)
    return properties.major, properties.minor


def is_sm90a_supported(device):
    major, _ = get_compute_capability(device)
    return major == 9 and version_at_least(torch.version.cuda, "12.3")
"""

CAPABILITY_RECORD = """
from dataclasses import dataclass


@dataclass(frozen=True)
class MLAPlanCapabilities:
    backend_name: str
    kv_layouts: frozenset[str]
    supports_sinks: bool = False


class _BackendPlanUnsupportedError(ValueError):
    pass


def plan_capability_rejection_reason(args, capabilities):
    return None if args.kv_layout in capabilities.kv_layouts else "layout"
"""

COMMON = """
from ..utils import get_compute_capability, is_sm90a_supported
from ._capabilities import MLAPlanCapabilities, _BackendPlanUnsupportedError
from ._capabilities import plan_capability_rejection_reason


def _validate(*, backend, device, page_size):
    for one in page_size:
        if one < 1:
            raise ValueError("page")
    if page_size[0] % 8:
        raise _BackendPlanUnsupportedError("page")
    major, minor = get_compute_capability(device)
    if backend == "fa3":
        if not is_sm90a_supported(device):
            raise _BackendPlanUnsupportedError("fa3 needs SM90")
    elif major < 8:
        raise _BackendPlanUnsupportedError("fa2 needs SM80")


class Base:
    _plan_capabilities = None

    @classmethod
    def preflight_plan_from_wrapper(cls, args):
        if reason := plan_capability_rejection_reason(args, cls._plan_capabilities):
            raise _BackendPlanUnsupportedError(reason)
        _validate(
            backend=cls._plan_capabilities.backend_name, device=args.device,
            page_size=args.page_size,
        )
"""

PLANS = """
from dataclasses import replace

from ._capabilities import MLAPlanCapabilities
from .common import Base


class Fa2(Base):
    _plan_capabilities = MLAPlanCapabilities(
        backend_name="fa2", kv_layouts=frozenset({"combined", "split"})
    )


class Fa3(Base):
    _name = "fa3"
    _plan_capabilities = replace(Fa2._plan_capabilities, backend_name=_name)


class Planned:
    _plan_capabilities: MLAPlanCapabilities
"""

OPERATORS = """
import torch

from ..utils import (
    backend_requirement,
    experimental_backend,
    get_compute_capability,
    supported_compute_capability,
)

_BOTH = [120, 121]
NEW = [cc for cc in (90, 100, 120) if cc > 90]


@supported_compute_capability(_BOTH)
def sparse_decode(q):
    return q


@supported_compute_capability(supported_ccs=(80, 90))
def _check_wide(q, backend):
    return True


@experimental_backend
@supported_compute_capability(NEW)
def _check_new(q, backend):
    return True


def _check_none(q, backend):
    return True


@backend_requirement({"wide": _check_wide, "new": _check_new, "none": _check_none})
def scores(q, backend="auto"):
    return q


@backend_requirement(backend_checks={}, common_check=_check_wide)
def logits(q):
    return q


class Runner:
    @supported_compute_capability([120])
    def __init__(self):
        pass


def hopper(q):
    if get_compute_capability(torch.device("cuda"))[0] not in [9]:
        raise RuntimeError("only SM90")
    return q
"""


def files(**changes: tuple[str, str]) -> dict[str, str]:
    """The package, with a text of one of its modules replaced by another."""
    made = {
        "flashinfer/utils.py": UTILS,
        "flashinfer/mla/_capabilities.py": CAPABILITY_RECORD,
        "flashinfer/mla/common.py": COMMON,
        "flashinfer/mla/plans.py": PLANS,
        "flashinfer/attention/operators.py": OPERATORS,
    }
    for name, (old, new) in changes.items():
        path = next(one for one in made if one.endswith(f"/{name}.py"))
        assert old in made[path]
        made[path] = made[path].replace(old, new)
    return made


Read = Callable[..., EngineReading]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def make(**changes: tuple[str, str]) -> EngineReading:
        source = open_source(write_package(tmp_path, files(**changes)), "flashinfer")
        return READER.read(Modules(source), CAPABILITIES)

    return make


def named(reading: EngineReading, name: str) -> Operator:
    (found,) = [one for one in reading.operators if one.name.endswith(f".{name}")]
    return found


def test_a_list_is_read_as_capabilities_at_the_line_of_its_function(read: Read) -> None:
    found = named(read(), "sparse_decode")
    assert found.name == "flashinfer.attention.operators.sparse_decode"
    assert found.at.file == "flashinfer/attention/operators.py"
    assert OPERATORS.splitlines()[found.at.line - 1] == "def sparse_decode(q):"
    assert found.accepts == Answer(value=["12.0", "12.1"])
    assert (found.enforced, found.attention, found.backends) == (False, True, {})


def test_each_backend_has_the_list_of_the_function_that_checks_it(read: Read) -> None:
    found = named(read(), "scores")
    assert found.accepts is None
    assert found.enforced
    assert {name: one.value for name, one in found.backends.items()} == {
        "wide": ["8.0", "9.0"],
        "new": ["10.0", "12.0"],
        "none": [],  # a check without a list lets no architecture through
    }


def test_without_a_choice_the_common_check_decides(read: Read) -> None:
    found = named(read(), "logits")
    assert (found.accepts, found.enforced) == (Answer(value=["8.0", "9.0"]), True)


def test_a_method_is_read_too(read: Read) -> None:
    assert named(read(), "Runner.__init__").accepts == Answer(value=["12.0"])


def test_the_record_of_a_plan_is_read_with_its_defaults_and_replacements(read: Read) -> None:
    reading = read()
    assert {name: one.value for name, one in named(reading, "Fa3").features.items()} == {
        "backend_name": "fa3",
        "kv_layouts": ["combined", "split"],
        "supports_sinks": False,
    }
    assert [one.name for one in reading.operators if one.name.endswith(("Base", "Planned"))] == []


def test_a_plan_raises_where_its_architecture_is_refused_whatever_comes_before(read: Read) -> None:
    reading = read()
    assert [*(named(reading, "Fa2").refuses or ())] == ["7.5"]
    fa3 = named(reading, "Fa3").refuses or {}
    assert [*fa3] == ["7.5", "8.0", "10.0", "12.0", "12.1", "99.0"]  # on 9.0 CUDA's version decides
    line = COMMON.splitlines()[fa3["8.0"].line - 1]
    assert 'raise _BackendPlanUnsupportedError("fa3 needs SM90")' in line


def test_a_public_function_that_raises_on_some_architectures_is_an_operator(read: Read) -> None:
    assert [*(named(read(), "hopper").refuses or ())] == [c for c in CAPABILITIES if c != "9.0"]


@pytest.mark.parametrize(
    "before",
    [
        "if device is None:\n        return",
        "with torch.inference_mode():\n        return",
        "try:\n        page()\n    except Exception:\n        return",
        "while page():\n        return",
        "yield",
        "return page_size",
    ],
)
def test_a_plan_that_may_end_or_change_before_is_not_said_to_raise(before: str, read: Read) -> None:
    reading = read(common=("    if backend ==", f"    {before}\n    if backend =="))
    assert named(reading, "Fa3").refuses == {}


@pytest.mark.parametrize(
    "before",
    [
        "if device is None:\n        backend = page_size",
        "for backend in page_size:\n        pass",
        "backend = page_size.backend",
    ],
)
def test_a_plan_raises_where_both_ways_of_an_unknown_test_do(before: str, read: Read) -> None:
    reading = read(common=("    if backend ==", f"    {before}\n    if backend =="))
    assert [*(named(reading, "Fa3").refuses or ())] == ["7.5"]


def test_an_error_that_may_be_caught_is_not_said_to_raise(read: Read) -> None:
    call = "        _validate(\n"
    tried = (
        "        try:\n            _validate(backend='fa3', device=args.device, page_size=[8])\n"
        "        except ValueError:\n            pass\n        return\n        _validate(\n"
    )
    assert named(read(common=(call, tried)), "Fa3").refuses == {}
    again = tried.replace("            pass\n", "            raise\n")
    assert "8.0" in (named(read(common=(call, again)), "Fa3").refuses or {})


def test_a_list_that_is_filled_on_the_way_is_not_taken_for_empty(read: Read) -> None:
    old = 'def hopper(q):\n    if get_compute_capability(torch.device("cuda"))[0] not in [9]:'
    new = (
        "def hopper(q):\n    major = get_compute_capability(q)[0]\n    found = []\n"
        "    for one in q:\n        found.append(one)\n    if major == 9 or not found:"
    )
    assert [*(named(read(operators=(old, new)), "hopper").refuses or ())] == ["9.0"]


@pytest.mark.parametrize(
    ("new", "why"),
    [
        ("_BOTH = [int(one) for one in torch.arch_list()]", "torch.arch_list"),
        ("_BOTH = [120]\n_BOTH.append(121)", "is changed after it was set"),
        ("_BOTH = _BOTH", "is defined by itself"),
        ("if torch.ok:\n    _BOTH = [120]\nelse:\n    _BOTH = [121]", "bound more than once"),
        ("_BOTH = [120, torch.cc()]", "torch.cc"),
    ],
)
def test_a_list_that_is_computed_is_dynamic_with_its_place(new: str, why: str, read: Read) -> None:
    answer = named(read(operators=("_BOTH = [120, 121]", new)), "sparse_decode").accepts
    assert answer is not None
    assert answer.dynamic is not None
    assert why in f"{answer.dynamic.expression} {answer.dynamic.why}"
    assert answer.dynamic.at.file == "flashinfer/attention/operators.py"


@pytest.mark.parametrize(
    "new", ["[True]", "['120']", "{120, 'a'}", "[12.0]", "120", "None", "'120'"]
)
def test_a_list_that_the_decorator_refuses_is_an_error_of_its_import(new: str, read: Read) -> None:
    operators = read(operators=("_BOTH = [120, 121]", f"_BOTH = {new}"))
    assert named(operators, "sparse_decode").accepts == Answer(raises="TypeError")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('@backend_requirement({"wide"', '@backend_requirement(CHECKS or {"wide"'),
        ('@backend_requirement({"wide"', '@backend_requirement(**{"wide"'),
        ('"wide": _check_wide, "new"', '**torch.checks(), "new"'),
        ("def scores(q, ", "def scores(q):\n    return 0\n\n\ndef scores(q, "),
        ('@backend_requirement({"wide"', '@torch.wrap\n@backend_requirement({"wide"'),
    ],
)
def test_a_requirement_in_another_form_is_dynamic_or_known_and_never_wrong(
    old: str, new: str, read: Read
) -> None:
    found = [one for one in read(operators=(old, new)).operators if one.name.endswith("scores")]
    for answer in (answer for one in found for answer in one.answers()):
        assert not answer.known or answer.value in (["8.0", "9.0"], ["10.0", "12.0"], [])


def test_a_list_below_a_decorator_that_is_not_read_is_dynamic(read: Read) -> None:
    hidden = ("@experimental_backend\n@supported", "@torch.wrap\n@supported")
    assert not named(read(operators=hidden), "scores").backends["new"].known


def test_a_decorator_of_another_package_declares_nothing(read: Read) -> None:
    other = ("from ..utils import (", "from other.utils import (")
    assert [one.name for one in read(operators=other).operators if "operators" in one.name] == []


def test_what_is_no_python_is_a_finding_and_the_rest_is_read(read: Read) -> None:
    reading = read(operators=("class Runner:", "class Runner(:"))
    assert [one.code for one in reading.findings] == ["DRF104"]
    assert named(reading, "Fa2").features


def test_imports_in_a_circle_end(read: Read) -> None:
    circle = ("import functools\n", "from .attention.operators import sparse_decode\n")
    reading = read(utils=circle)
    assert named(reading, "sparse_decode").accepts == Answer(value=["12.0", "12.1"])


def test_a_package_that_declares_nothing_is_one_finding(tmp_path: Path) -> None:
    root = write_package(tmp_path, {"flashinfer/code.py": "N = 1\n"})
    reading = READER.read(Modules(open_source(root, "flashinfer")), CAPABILITIES)
    assert [one.code for one in reading.findings] == ["DRF107"]
    assert [*compare_operators(loads(MANIFEST, "m.yaml"), reading)] == []


def test_a_wheel_and_a_folder_give_the_same(read: Read, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "flashinfer-1.2.3-py3-none-any.whl", files())
    told = READER.read(Modules(open_source(wheel, "flashinfer")), CAPABILITIES)
    assert told.version == "1.2.3"
    assert told.operators == read().operators


# -- entries ------------------------------------------------------------------------------------

MANIFEST = """
attnsel: 1
name: ours
version: "1"
backends:
  - name: sparse
    library: flashinfer-python
    source: a test
    sources: {capability: flashinfer.attention.operators.sparse_decode}
    mla: false
    sparse: false
    accepts: &accepts
      platform: [cuda]
      capability: ["12.0", "12.1"]
      head_size: [64]
      dtype: [bfloat16]
      kv_cache_dtype: [auto]
      block_size: [16]
      attn_type: [decoder]
    phases: {decode: {}}
    decode_threshold: 1
  - name: mla_fa3
    library: flashinfer-python
    source: a test
    sources: {capability: flashinfer.mla.plans.Fa3}
    mla: true
    sparse: false
    kv_layout: [combined]
    accepts: {<<: *accepts, capability: ["9.0"]}
    phases: {decode: {}}
    decode_threshold: 1
  - name: silent
    library: flashinfer-python
    source: a test
    mla: false
    sparse: false
    accepts: *accepts
    phases: {decode: {}}
    decode_threshold: 1
  - name: other
    library: torch
    source: a test
    mla: false
    sparse: false
    accepts: *accepts
    phases: {decode: {}}
    decode_threshold: 1
"""

Drift = Callable[..., list[Finding]]


@pytest.fixture
def drift(read: Read) -> Drift:
    def make(manifest: tuple[str, str] = ("", ""), **changes: tuple[str, str]) -> list[Finding]:
        assert manifest[0] in MANIFEST
        stated = loads(MANIFEST.replace(*manifest) if manifest[0] else MANIFEST, "m.yaml")
        return sorted(compare_operators(stated.as_claimed(), read(**changes)))

    return make


def of(findings: list[Finding], code: str, word: str = "") -> list[Finding]:
    return [one for one in findings if one.code == code and word in one.message]


def test_a_manifest_that_says_what_the_code_says_has_only_notes(drift: Drift) -> None:
    assert {one.severity for one in drift()} == {Severity.NOTE}


def test_a_capability_that_the_list_refuses_names_both_places(drift: Drift) -> None:
    (found,) = of(drift(('["12.0", "12.1"]', '["10.0", "12.0", "12.1"]')), "DRF001")
    line = MANIFEST[: MANIFEST.index('["12.0", "12.1"]')].count("\n") + 1
    assert (found.file, found.line, found.severity) == ("m.yaml", line, Severity.ERROR)
    at = OPERATORS[: OPERATORS.index("def sparse_decode")].count("\n") + 1
    assert found.message == (
        "sparse capability: the manifest accepts 10.0, and sparse_decode "
        f"(flashinfer/attention/operators.py:{at}) refuses it, by a list that nothing enforces"
    )


def test_a_capability_that_the_manifest_refuses_is_told_too(drift: Drift) -> None:
    (found,) = of(drift(operators=("[120, 121]", "[100, 120, 121]")), "DRF001")
    assert "the manifest refuses 10.0, and sparse_decode" in found.message
    assert "accepts it" in found.message


def test_a_list_that_is_not_known_is_not_decided_and_never_a_pass(drift: Drift) -> None:
    found = drift(operators=("_BOTH = [120, 121]", "_BOTH = torch.ccs()"))
    assert of(found, "DRF001") == []
    (open_,) = of(found, "DRF007", "sparse capability")
    assert "flashinfer/attention/operators.py:" in open_.message
    assert "torch.ccs" in open_.message


def test_a_capability_on_which_the_plan_raises_names_the_raise(drift: Drift) -> None:
    (found,) = of(drift(('["9.0"]', '["8.0", "9.0"]')), "DRF006")
    at = COMMON[: COMMON.index('raise _BackendPlanUnsupportedError("fa3')].count("\n") + 1
    assert "mla_fa3 capability: the manifest accepts 8.0, and Fa3 (flashinfer/mla/plans.py:" in (
        found.message
    )
    assert f"raises (flashinfer/mla/common.py:{at})" in found.message


def test_a_capability_that_no_plan_refuses_is_not_decided(drift: Drift) -> None:
    found = drift(("plans.Fa3", "plans.Fa2"))
    (open_,) = of(found, "DRF007", "whether Fa2")
    assert "mla_fa3 capability on 8.0, 10.0, 12.0, 12.1" in open_.message
    assert of(found, "DRF006") == []


def test_a_feature_and_a_layout_of_a_plan_are_compared(drift: Drift) -> None:
    old, new = 'frozenset({"combined", "split"})', "frozenset({'split'}), supports_sinks=True"
    sinks = (f"kv_layouts={old}", f"kv_layouts={new}")
    found = drift(plans=sinks)
    (sink,) = of(found, "DRF001", "mla_fa3 sink")
    assert "the manifest refuses it, and supports_sinks of Fa3 (flashinfer/mla/plans.py:" in (
        sink.message
    )
    (layout,) = of(found, "DRF001", "mla_fa3 kv_layout")
    assert "the manifest says combined, and kv_layouts of Fa3" in layout.message
    claims = (
        "    claimed: {accepts: {sink: any}, source: flashinfer.mla.plans.Fa3}\n  - name: silent"
    )
    assert of(drift(("  - name: silent", claims), plans=sinks), "DRF001", "sink") == []


def test_an_entry_that_names_nothing_is_not_decided_and_another_library_is_none(
    drift: Drift,
) -> None:
    found = drift()
    (open_,) = of(found, "DRF007", "silent")
    assert "its sources name no operator of flashinfer" in open_.message
    assert of(found, "DRF007", "other") == []
    assert of(found, "DRF004") == []


def test_a_name_that_is_gone_is_an_error_at_its_field(drift: Drift) -> None:
    (found,) = of(drift(operators=("def sparse_decode", "def other_decode")), "DRF004")
    assert found.severity is Severity.ERROR
    assert "flashinfer.attention.operators.sparse_decode is its source" in found.message


def test_attention_that_no_entry_names_is_a_note_for_each_file(drift: Drift) -> None:
    found = of(drift(), "DRF003")
    assert [one.file.rpartition("/")[2] for one in found] == ["operators.py", "plans.py"]
    assert "scores, logits" in found[0].message
    assert "sparse_decode" not in found[0].message
    assert "_check_wide" not in found[0].message
    assert "Fa2 says here where to run" in found[1].message


# What FlashInfer 0.7.4 says nowhere in Python: its kernels' compilers and runners decide.
UNDECLARED = {
    "flashinfer_fa2",
    "flashinfer_cuda_cores",
    "flashinfer_attention_sink",
    "flashinfer_fa3",
    "flashinfer_cudnn",
    "flashinfer_trtllm_gen",
    "flashinfer_sparse_mla_trtllm_gen",
}


def test_each_shipped_entry_names_its_operator_or_has_none() -> None:
    entries = [one for one in load(SHIPPED).entries.values() if one.library == READER.library]
    named_ones = {
        one.name for one in entries if one.sources.get("capability", "").startswith("flashinfer.")
    }
    assert {one.name for one in entries} - named_ones <= UNDECLARED
