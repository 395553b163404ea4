"""Two versions of a small engine of vLLM's shape, compared with each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from selector.drift.between.changes import Change, EngineDifference, Kind, Side, What
from selector.drift.between.engines import compare_engines
from selector.drift.engines.vllm import READER
from selector.drift.modules import Modules
from selector.drift.reading import Answer, Dynamic, EngineReading, Operator
from selector.drift.sources import open_source
from selector.values import Position

from .conftest import write_package
from .test_vllm import engine_files

CAPABILITIES = ("8.0", "9.0", "12.0", "99.0")
REGISTRY = "backends/registry"
DENSE = "supports_dense_mha_prefill"
FLASH_IMPL = "class FlashImpl(ImplBase[int]):\n"
STATES_FALSE = f"    {DENSE} = False\n"
SAYS_SINK = "current_platform.is_cuda() and current_platform.has_device_capability(90)"

Edits = dict[str, tuple[str, str]]
"""File under ``vllm/v1/attention``, without its suffix → text, and what replaces it."""

EDITS: dict[str, Edits] = {
    "states no longer that it has none": {"sparse": (STATES_FALSE, "")},
    "base": {"backend": (f"{DENSE}: bool = True", f"{DENSE}: bool = False")},
    "capability": {"flash": ("capability.major < 12", "capability.major < 13")},
    "list": {"flash": ('["auto", "fp8"]', '["auto", "bfloat16", "fp8"]')},
    "list, both": {"flash": ("[64, 128, 256]", "[64, 96]")},
    "unknown": {"flash": (SAYS_SINK, "other_package.version() > 3")},
    "argument": {"sparse": ('!= "fp8_ds_mla"', 'not in ("fp8_ds_mla", "auto")')},
    "method": {
        "flash": ("        return self.workspace[self.kv_cache_dtype]", "        raise ValueError")
    },
    "new question": {"backend": ("    is_sparse", "    supports_dcp: bool = True\n    is_sparse")},
    "states it": {"flash": (FLASH_IMPL, f"{FLASH_IMPL}    {DENSE} = True\n\n")},
    "constructor sets it": {
        "flash": (
            "        self.kv_cache_dtype = kv_cache_dtype\n",
            f"        self.kv_cache_dtype = self.{DENSE} = kv_cache_dtype\n",
        )
    },
    "removed": {REGISTRY: ("    COMPOSITE =", "    _other = 3  #")},
    "renamed": {REGISTRY: ("    SPARSE_SM120 =", "    SPARSE_12 =")},
    "other class": {REGISTRY: ("flash.FlashBackend", "sparse.SparseBackend")},
    "unreadable": {"sparse": ("class SparseBackend", "class class")},
    "other implementation": {"sparse": ("return SparseSM120Impl", "return SparseCommon")},
}


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., EngineReading]:
    """Reads the engine after edits of it; each reading has its own folder."""
    count = iter(range(100))

    def make(edits: Edits | None = None, **moved: str) -> EngineReading:
        files = engine_files()
        for name, (old, new) in (edits or {}).items():
            path = f"vllm/v1/attention/{name}.py"
            assert old in files[path]
            files[path] = files[path].replace(old, new)
        for old, new in moved.items():
            text = files.pop(f"vllm/v1/attention/{old}.py")
            files[f"vllm/v1/attention/{new}.py"] = text
            path = f"vllm/v1/attention/{REGISTRY}.py"
            files[path] = files[path].replace(f"attention.{old}.", f"attention.{new}.")
        source = open_source(write_package(tmp_path / str(next(count)), files), "vllm")
        return READER.read(Modules(source), CAPABILITIES)

    return make


@pytest.fixture
def compare(read: Callable[..., EngineReading]) -> Callable[..., EngineDifference]:
    def make(new: Edits | None = None, old: Edits | None = None) -> EngineDifference:
        return compare_engines(read(old), read(new))

    return make


def only(difference: EngineDifference, name: str) -> Change:
    """The one change of a claim, method or argument."""
    (found,) = [one for one in difference.changes if one.name == name]
    return found


def said(side: Side | None) -> Any:
    assert side is not None
    assert side.answer is not None
    return side.answer.value


@pytest.mark.parametrize("edits", [{}, *EDITS.values()], ids=["as it is", *EDITS])
def test_a_version_does_not_differ_from_itself(compare: Any, edits: Edits) -> None:
    found = compare(edits, edits)
    assert not found.is_different, (found.changes, found.guards, found.backends)
    assert found.uncompared  # what nobody knows is not the same
    assert all(one.kind is Kind.UNCOMPARED for one in found.uncompared)


def test_what_is_not_known_is_not_counted_as_the_same(compare: Any) -> None:
    known, unknown = compare(), compare(EDITS["unknown"], EDITS["unknown"])
    assert unknown.same == known.same - 1
    (found,) = [one for one in unknown.uncompared if one.name == "supports_sink"]
    assert found.backends == ("FLASH",)
    assert found.capabilities == CAPABILITIES


@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS)
def test_the_other_direction_says_the_opposite(compare: Any, edits: Edits) -> None:
    there, back = compare(edits), compare(old=edits)
    assert there.is_different

    def shown(difference: EngineDifference, opposite: bool) -> set[Any]:
        return {
            (
                one.kind.opposite if opposite else one.kind,
                one.name,
                one.capabilities,
                frozenset(map(str, one.lost if opposite else one.gained)),
                frozenset(map(str, one.gained if opposite else one.lost)),
                frozenset(one.own_after if opposite else one.own_before),
                frozenset(one.own_before if opposite else one.own_after),
            )
            for one in difference.changes
        }

    assert shown(there, opposite=False) == shown(back, opposite=True)
    assert sorted(one.kind.opposite for one in there.guards) == sorted(g.kind for g in back.guards)
    assert sorted((one.kind.opposite, one.role) for one in there.backends) == sorted(
        (one.kind, one.role) for one in back.backends
    )
    assert (there.same, len(there.uncompared)) == (back.same, len(back.uncompared))


def positions(found: EngineDifference) -> Iterator[tuple[str, Position]]:
    """Every place that is told, with the version it is in."""
    for change in (*found.changes, *found.uncompared):
        both = (("old", change.before), ("new", change.after))
        for version, side in (*both, *zip(("old", "new"), change.by or (), strict=False)):
            if side is not None:
                yield version, side.at
                yield from ((version, one.at) for one in side.assigned)
                if side.answer is not None and side.answer.dynamic is not None:
                    yield version, side.answer.dynamic.at
    for guard in found.guards:
        for version, refusal in (("old", guard.before), ("new", guard.after)):
            if refusal is not None:
                yield version, refusal.at
    for one in (*found.backends, *found.unread):
        for version, at in (("old", one.before_at), ("new", one.after_at)):
            if at is not None:
                yield version, at


@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS)
def test_every_place_exists(read: Any, edits: Edits) -> None:
    old, new = read(), read(edits)
    roots = {"old": Path(old.source), "new": Path(new.source)}
    found = list(positions(compare_engines(old, new)))
    assert found
    for version, at in found:
        lines = (roots[version] / at.file).read_text(encoding="utf-8").splitlines()
        assert 1 <= at.line <= len(lines), at
        assert len(lines[at.line - 1]) >= at.column, at


def test_an_implementation_that_no_longer_states_it_inherits_what_the_base_says(
    compare: Any,
) -> None:
    found = only(compare(EDITS["states no longer that it has none"]), DENSE)
    assert (found.kind, found.backends) == (Kind.WIDENED, ("SPARSE_SM120",))
    assert (found.own_before, found.own_after) == (("SPARSE_SM120",), ())
    assert (said(found.before), said(found.after)) == (False, True)
    assert found.before.defined_in == "vllm.v1.attention.sparse.SparseSM120Impl"
    assert found.after.defined_in == "vllm.v1.attention.backend.ImplBase"


def test_the_same_value_that_is_inherited_and_was_stated_is_told(compare: Any) -> None:
    found = only(compare(old=EDITS["states it"]), DENSE)
    assert (found.kind, found.backends) == (Kind.UNSTATED, ("FLASH",))
    assert (said(found.before), said(found.after)) == (True, True)
    assert only(compare(EDITS["states it"]), DENSE).kind is Kind.STATED


def test_a_change_of_a_base_is_told_once_with_its_heirs(compare: Any) -> None:
    found = only(compare(EDITS["base"]), DENSE)
    assert (found.kind, found.backends) == (Kind.NARROWED, ("FLASH",))
    assert found.overridden_by == ("SPARSE_SM120",)
    both = {"sparse": (STATES_FALSE, "")}
    found = only(compare(EDITS["base"] | both, both), DENSE)
    assert (found.backends, found.overridden_by) == (("FLASH", "SPARSE_SM120"), ())
    assert (found.own_before, found.own_after) == ((), ())


def test_an_architecture_that_is_accepted_now_is_wider_there_only(compare: Any) -> None:
    found = only(compare(EDITS["capability"]), "supports_compute_capability")
    assert (found.kind, found.capabilities) == (Kind.WIDENED, ("12.0",))


def test_a_list_is_told_with_the_method_that_looks_into_it_and_once(compare: Any) -> None:
    found = compare(EDITS["list"])
    change = only(found, "supports_kv_cache_dtype")
    assert (change.kind, change.gained, change.lost) == (Kind.WIDENED, ("bfloat16",), ())
    assert change.before.defined_in.endswith("AttentionBackend")
    assert [one.defined_in for one in change.by] == ["vllm.v1.attention.flash.FlashBackend"] * 2
    assert said(change.by[0]) == ["auto", "fp8"]
    assert [one.name for one in found.changes] == ["supports_kv_cache_dtype"]


def test_values_gained_and_lost_are_neither_wider_nor_narrower(compare: Any) -> None:
    changes = [one for one in compare(EDITS["list, both"]).changes if one.by]
    (found,) = changes
    assert (found.kind, found.gained, found.lost) == (Kind.CHANGED, (96,), (128, 256))
    composite = [
        one
        for one in compare(EDITS["list, both"]).changes
        if one.backends == ("COMPOSITE",) and one.name == "supports_head_size"
    ]
    assert [(one.gained, one.lost) for one in composite] == [((96,), (128,))]


def test_of_a_requirement_nobody_knows_which_way_is_wider(compare: Any) -> None:
    def edit(value: bool) -> Edits:
        return {
            "backend": ("    is_sparse", f"    requires_padding: bool = {value}\n    is_sparse")
        }

    assert only(compare(edit(True), edit(False)), "requires_padding").kind is Kind.CHANGED


def test_an_empty_list_can_mean_any_and_is_not_compared_as_one(compare: Any) -> None:
    def edit(values: str) -> Edits:
        method = f"    @classmethod\n    def supported_layouts(cls):\n        return {values}\n\n"
        head = "    @classmethod\n    def supports_compute_capability"
        return {"backend": (head, f"{method}{head}")}

    assert only(compare(edit("[1]"), edit("[]")), "supported_layouts").kind is Kind.CHANGED
    assert only(compare(edit("[1, 2]"), edit("[1]")), "supported_layouts").kind is Kind.WIDENED


def test_what_is_no_longer_known_is_told_apart(compare: Any) -> None:
    found = [one for one in compare(EDITS["unknown"]).changes if one.name == "supports_sink"]
    assert {one.kind for one in found} == {Kind.OPENED}
    assert {one.capabilities for one in found} == {("8.0",), ("9.0", "12.0", "99.0")}
    assert all(one.after.answer.dynamic is not None for one in found)


def test_a_value_that_a_constructor_refuses_no_longer_is_wider(compare: Any) -> None:
    found = compare(EDITS["argument"])
    change = only(found, "kv_cache_dtype")
    assert (change.what, change.kind, change.gained) == (What.ARGUMENT, Kind.WIDENED, ("auto",))
    assert change.before.at.file == "vllm/v1/attention/sparse.py"
    (guard,) = found.guards
    assert (guard.kind, guard.backends) == (Kind.CHANGED, ("SPARSE_SM120",))
    assert guard.before.tests != guard.after.tests


def test_a_guard_that_came_is_told_with_what_it_refuses(compare: Any) -> None:
    gone = {"sparse": ('        if self.kv_cache_dtype != "fp8_ds_mla":\n', "        if False:\n")}
    found = compare(old=gone)
    change = only(found, "kv_cache_dtype")
    assert (change.kind, change.gained) == (Kind.NARROWED, ())
    assert "auto" in change.lost
    assert "fp8_ds_mla" not in change.lost


def test_a_method_that_only_raises_now_is_narrower(compare: Any) -> None:
    found = only(compare(EDITS["method"]), "forward")
    assert (found.what, found.kind) == (What.METHOD, Kind.NARROWED)
    assert found.after.answer.raises == "ValueError"


def test_a_constructor_that_sets_it_now_is_told_though_the_class_says_the_same(
    compare: Any,
) -> None:
    found = only(compare(EDITS["constructor sets it"]), DENSE)
    assert (found.kind, said(found.before), said(found.after)) == (Kind.CHANGED, True, True)
    assert (found.before.assigned, len(found.after.assigned)) == ((), 1)


def test_what_is_said_for_the_first_time_is_neither(compare: Any) -> None:
    found = only(compare(EDITS["new question"]), "supports_dcp")
    assert (found.kind, found.before, said(found.after)) == (Kind.ADDED, None, True)
    assert found.backends == ("FLASH", "SPARSE_SM120")


@pytest.mark.parametrize(
    ("edit", "kind", "name", "role"),
    [
        ("removed", Kind.REMOVED, "COMPOSITE", "registry"),
        ("renamed", Kind.RENAMED, "SPARSE_12", "registry"),
        ("other class", Kind.CHANGED, "FLASH", "backend"),
        ("other implementation", Kind.CHANGED, "SPARSE_SM120", "impl"),
        ("unreadable", Kind.OPENED, "SPARSE_SM120", "backend"),
    ],
)
def test_backends_that_came_went_or_are_others(
    compare: Any, edit: str, kind: Kind, name: str, role: str
) -> None:
    found = {(one.kind, one.name, one.role) for one in compare(EDITS[edit]).backends}
    assert (kind, name, role) in found


def test_a_renamed_backend_is_compared_under_its_new_name(compare: Any) -> None:
    found = compare(EDITS["renamed"])
    assert "SPARSE_12" in found.shared
    assert found.changes == ()


def test_a_class_that_only_moved_says_the_same(read: Any) -> None:
    found = compare_engines(read(), read(sparse="scarce"))
    assert {(one.kind, one.role) for one in found.backends} == {
        (Kind.MOVED, "backend"),
        (Kind.MOVED, "impl"),
    }
    assert (found.changes, found.guards) == ((), ())


def test_a_registry_that_cannot_be_read_takes_no_backend_away(read: Any) -> None:
    broken = read({REGISTRY: ("class AttentionBackendEnum", "class Other")})
    found = compare_engines(read(), broken)
    assert {one.kind for one in found.backends} == {Kind.OPENED}
    assert [one.code for one in found.new.findings] == ["DRF107"]
    assert found.is_readable  # the other registry is there


def replaced(reading: EngineReading, name: str, **parts: Any) -> EngineReading:
    """A reading in which the implementation of a backend was read otherwise."""
    change = msgspec.structs.replace
    backends = tuple(
        change(one, impl=change(one.impl, **parts)) if one.name == name else one
        for one in reading.backends
    )
    return change(reading, backends=backends)


def test_a_guard_that_reads_an_argument_and_says_nothing_of_it_is_not_known(read: Any) -> None:
    old = read()
    impl = next(one.impl for one in old.backends if one.name == "SPARSE_SM120")
    silent = tuple(msgspec.structs.replace(guard, refuses=()) for guard in impl.guards)
    found = compare_engines(old, replaced(old, "SPARSE_SM120", guards=silent))
    kinds = {one.name: one.kind for one in found.changes}
    assert kinds == dict.fromkeys(
        ("kv_cache_dtype", "alibi_slopes", "logits_soft_cap"), Kind.OPENED
    )


def test_what_stands_nowhere_is_told_at_its_class(read: Any) -> None:
    old = read()
    impl = next(one.impl for one in old.backends if one.name == "FLASH")
    nowhere = msgspec.structs.replace(
        impl.attributes[DENSE], defined_in="", at=Position("", 1, 1), answer=Answer(value=False)
    )
    attributes = impl.attributes | {DENSE: nowhere}
    found = only(compare_engines(old, replaced(old, "FLASH", attributes=attributes)), DENSE)
    assert (found.after.at, found.after.defined_in) == (impl.at, "")


AT = Position("flash/ops.py", 7, 1)


def operators(*known: Operator) -> EngineReading:
    """A library that has no registry."""
    return EngineReading(
        "flash", "1.0", "flash.whl", "cuda", CAPABILITIES, (), (), 1, (), operators=known
    )


@pytest.mark.parametrize(
    ("before", "after", "name", "kind", "where"),
    [
        (
            {"accepts": Answer(value=["9.0"])},
            {"accepts": Answer(value=["9.0", "12.0"])},
            "accepts",
            Kind.WIDENED,
            ("12.0",),
        ),
        (
            {"backends": {"fa3": Answer(value=["9.0"])}},
            {"backends": {"fa3": Answer(raises="ValueError")}},
            "accepts by fa3",
            Kind.NARROWED,
            ("9.0",),
        ),
        ({}, {"backends": {"fa3": Answer(value=[])}}, "accepts by fa3", Kind.ADDED, CAPABILITIES),
        (
            {"refuses": {}},
            {"refuses": {"8.0": AT}},
            "accepts without raising",
            Kind.NARROWED,
            ("8.0",),
        ),
        (
            {"features": {"supports_sinks": Answer(value=False)}},
            {"features": {"supports_sinks": Answer(value=True)}},
            "supports_sinks",
            Kind.WIDENED,
            CAPABILITIES,
        ),
        (
            {"features": {"lse_modes": Answer(value=["none"])}},
            {"features": {"lse_modes": Answer(value=["base2"])}},
            "lse_modes",
            Kind.CHANGED,
            CAPABILITIES,
        ),
        (
            {"accepts": Answer(value=["9.0"])},
            {"accepts": Answer(dynamic=Dynamic(AT, "probe()", "asks the driver"))},
            "accepts",
            Kind.OPENED,
            ("9.0",),
        ),
        ({"enforced": False}, {"enforced": True}, "enforced", Kind.CHANGED, CAPABILITIES),
    ],
)
def test_what_operators_declare_is_compared(
    before: dict[str, Any], after: dict[str, Any], name: str, kind: Kind, where: tuple[str, ...]
) -> None:
    old, new = (operators(Operator("flash.ops.run", AT, **said)) for said in (before, after))
    found = compare_engines(old, new)
    change = [one for one in found.changes if one.name == name and one.capabilities == where]
    assert [(one.kind, one.what, one.backends) for one in change] == [
        (kind, What.OPERATOR, ("flash.ops.run",))
    ]
    back = compare_engines(new, old)
    assert sorted(one.kind.opposite for one in found.changes) == sorted(
        c.kind for c in back.changes
    )
    assert not compare_engines(old, old).is_different
    assert found.is_readable


def test_an_operator_that_raises_is_told_at_the_raise() -> None:
    raises = Position("flash/ops.py", 9, 5)
    old = operators(Operator("flash.ops.run", AT, refuses={}))
    new = operators(Operator("flash.ops.run", AT, refuses={"8.0": raises}))
    (change,) = compare_engines(old, new).changes
    assert (change.before.at, change.after.at) == (AT, raises)


def test_operators_that_came_went_or_moved() -> None:
    old = operators(*(Operator(name, AT) for name in ("flash.run", "flash.a.plan", "flash.old")))
    new = operators(*(Operator(name, AT) for name in ("flash.run", "flash.b.plan", "flash.new")))
    found = compare_engines(old, new)
    assert {(one.kind, one.name) for one in found.backends} == {
        (Kind.MOVED, "flash.b.plan"),
        (Kind.REMOVED, "flash.old"),
        (Kind.ADDED, "flash.new"),
    }
    assert found.shared_operators == ("flash.run", "flash.b.plan")
    assert found.changes == ()
