"""The dense prefill of sparse backends: who says that there is one, and does the manifest agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from selector.drift.machines import Pair
from selector.drift.reading import Attribute, ClassReading, Vocabulary
from selector.drift.rules import CLAIM, DENSE, UNDECIDED
from selector.drift.saying import method_fails, name_of, place_of, says, source_of
from selector.values import Finding, Position, Severity

__all__ = ["compare_dense_prefill", "inherited_words"]


def compare_dense_prefill(pairs: Iterable[Pair]) -> Iterator[Finding]:
    """Where an entry and the class that supplies an implementation's word differ, of sparse ones.

    Args:
        pairs: the entries, not as claimed, and the backends that they describe.
    """
    for pair in pairs:
        yield from _compare(pair)


def _compare(pair: Pair) -> Iterator[Finding]:
    entry, backend, vocabulary = pair
    impl, asked = backend.impl, vocabulary.dense_prefill
    if not asked or (not entry.sparse and not _is_sparse(pair)):
        return
    at = entry.dense_prefill_at or entry.position
    if impl is None:
        why = backend.impl_problem or "no implementation is named"
        yield UNDECIDED.finding(at, f"{entry.name} dense_prefill: {why}")
        return
    stated = impl.attributes.get(asked)
    if stated is None or not (says(stated, True) or says(stated, False)):
        why = "is not known from the code alone" if stated else "is said by no class"
        words = f"{asked} of {name_of(impl.path)} ({place_of(impl.at)}) {why}"
        yield UNDECIDED.finding(at, f"{entry.name} dense_prefill: {words}")
    elif stated.defined_in != impl.path and says(stated, True):
        yield _inherited(pair, stated, at)
    elif not says(_kind(pair, "mla"), False):
        yield from _stated(pair, stated, at)


def _stated(pair: Pair, stated: Attribute, at: Position) -> Iterator[Finding]:
    """What the implementation itself says, or a base that says there is none."""
    entry, impl = pair.entry, pair.backend.impl
    assert impl is not None
    claim = entry.claimed.dense_prefill if entry.claimed is not None else None
    said = entry.dense_prefill if claim is None else claim
    if said is None or says(stated, said):
        return
    words = (
        f"{entry.name} dense_prefill: the manifest says {str(said).lower()}, "
        f"and {source_of(stated)} says {not said}"
    )
    if set_at := [one for one in impl.assigned if one.name == stated.name]:
        place = place_of(set_at[0].at)
        words += f"; a constructor sets {set_at[0].expression} at times ({place})"
        yield UNDECIDED.finding(at, words)
    else:
        yield CLAIM.finding(at, words)


def _inherited(pair: Pair, stated: Attribute, at: Position) -> Finding:
    entry, impl, name = pair.entry, pair.backend.impl, stated.name
    assert impl is not None
    words = f"{entry.name}: {inherited_words(impl, stated, pair.vocabulary)}"
    set_at = [one for one in impl.assigned if one.name == name]
    if says(_kind(pair, "mla"), False):
        words += "; only MLA layers ask for it, and this is none"
        return DENSE.finding(at, words, severity=Severity.NOTE)
    claimed = entry.claimed is not None and entry.claimed.dense_prefill is True
    if entry.dense_prefill is not False or claimed:
        fix = f"state {name} in {name_of(impl.path)}"
        return DENSE.finding(at, words, fix, Severity.WARNING)
    if set_at:
        return UNDECIDED.finding(at, words)
    return DENSE.finding(
        at, f"{words}; the manifest says false", f"set {name} = False in the class"
    )


def inherited_words(impl: ClassReading, stated: Attribute, vocabulary: Vocabulary) -> str:
    """What an implementation inherits of its dense prefill, from where, and what comes of it."""
    words = (
        f"{name_of(impl.path)} ({place_of(impl.at)}) does not state {stated.name} and inherits "
        f"True from {name_of(stated.defined_in)} ({place_of(stated.at)})"
        f"{_promise(impl, vocabulary.dense_method)}"
    )
    if set_at := [one for one in impl.assigned if one.name == stated.name]:
        words += f"; a constructor sets {set_at[0].expression} at times ({place_of(set_at[0].at)})"
    return words


def _promise(impl: ClassReading, name: str) -> str:
    """What keeps the inherited path from running, where that is seen."""
    method = impl.methods.get(name)
    if method is None:
        return ""
    words = method_fails(method)
    return f"; {words}" if words else ""


def _is_sparse(pair: Pair) -> bool:
    """Whether the backend or its implementation says so; the router asks the latter."""
    name, impl = pair.vocabulary.kinds.get("sparse", ""), pair.backend.impl
    said = impl.attributes.get(name) if impl is not None else None
    return says(_kind(pair, "sparse"), True) or says(said, True)


def _kind(pair: Pair, field: str) -> Attribute | None:
    """What the backend's class says of all its layers."""
    cls = pair.backend.cls
    return cls.attributes.get(pair.vocabulary.kinds.get(field, "")) if cls is not None else None
