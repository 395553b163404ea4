"""CAP106: a family of architectures whose members differ in shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from selector.domains import Domain, Value
from selector.fields import BUILTIN, parse_capability
from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.statements import Place, Stated, atoms, predicates
from selector.manifest import Entry
from selector.rules import Question
from selector.values import Finding, Position, Severity
from selector.words import listed_and

_BYTES_PER_ELEMENT = 512
"""Of a head: a tile of 128 queries beside one of 64 keys and one of 64 values, 16 bits each."""

_LOOKED_AT = (Place.ACCEPTS, Place.WHEN, Place.DERIVE)


def _check(context: Context) -> Iterator[Finding]:
    sizes = _shared_memory(context)
    done: set[Position] = set()
    for stated in predicates(context):
        if stated.field != "capability" or stated.place not in _LOOKED_AT:
            continue
        for value, at in atoms(stated.value, stated.at):
            members = _members(value, sizes)
            if at in done or len(set(members.values())) < 2:
                continue
            short = _too_small(context, stated, members)
            if short:
                done.add(at)
                yield RULE.finding(
                    at,
                    f"the members of {value} differ in shared memory ({_by_size(members)}), and "
                    f"head sizes above {_largest(members[short[0]])} are taken on "
                    f"{listed_and(short)} as on the others",
                    "list the members, and the head sizes of each by `cases`",
                )


def _shared_memory(context: Context) -> dict[str, int]:
    """Capability → the shared memory that one block can have, in KiB."""
    return {
        str(known["capability"]): int(str(known["shared_memory_kib"]))
        for known in context.architectures
        if "shared_memory_kib" in known
    }


def _members(value: Any, sizes: Mapping[str, int]) -> dict[str, int]:
    """The known members of a family such as ``8.x``, with their shared memory."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,2}\.x", value):
        return {}
    return {text: kib for text, kib in sizes.items() if text.startswith(value[:-1])}


def _largest(kib: int) -> int:
    """The largest head whose tiles fit, in elements."""
    return kib * 1024 // _BYTES_PER_ELEMENT


def _too_small(context: Context, stated: Stated, members: Mapping[str, int]) -> list[str]:
    """The members on which heads are taken whose tiles fit the largest member only."""
    most = max(members.values())
    found = []
    for text, kib in members.items():
        taken = _heads(context, stated, text)
        beyond = Domain.between(_largest(kib) + 1, None)
        if kib < most and not (taken & beyond).is_empty():
            found.append(text)
    return found


def _heads(context: Context, stated: Stated, capability: str) -> Domain:
    """The head sizes that a statement takes on an architecture."""
    entry = context.manifest.entries.get(stated.name)
    if entry is not None and entry.mla:
        return Domain()  # heads of a latent are never held whole
    if stated.place is Place.ACCEPTS:
        return Domain() if entry is None else _accepted_on(context, entry, capability)
    if stated.decides == "head_size":
        return _domain(stated.result)
    beside = stated.beside
    return _domain(beside["head_size"]) if beside and "head_size" in beside else Domain()


def _accepted_on(context: Context, entry: Entry, capability: str) -> Domain:
    manifest = context.manifest
    values: dict[str, Value | Domain] = {
        "platform": "cuda",
        "capability": parse_capability(capability),
    }
    asked = Question(manifest.vocabulary, values).derived(manifest.derive)
    return Domain.union(
        match.rule.result.allowed.fixed
        for spec in entry.phases.values()
        if not spec.disabled and spec.accepts["capability"].matches(asked)
        for match in spec.accepts["head_size"].matches(asked)
    )


def _domain(raw: Any) -> Domain:
    """The numbers of a predicate on ``head_size``; bounds from other fields count as none."""
    if raw == "any":
        return next(field for field in BUILTIN if field.name == "head_size").universe()
    parts = []
    for part in raw if isinstance(raw, list) else [raw]:
        if isinstance(part, dict):
            low, high = part.get("min"), part.get("max")
            if not isinstance(low, dict) and not isinstance(high, dict):
                parts.append(Domain.between(low, high, part.get("multiple_of", 1)))
        elif isinstance(part, int):
            parts.append(Domain.of(part))
    return Domain.union(parts)


def _by_size(members: Mapping[str, int]) -> str:
    """``99 KiB on 8.6 and 8.9, 163 KiB on 8.0 and 8.7``."""
    return ", ".join(
        f"{kib} KiB on {listed_and(text for text, own in members.items() if own == kib)}"
        for kib in sorted(set(members.values()))
    )


RULE = Rule(
    code="CAP106",
    name="unequal-family",
    severity=Severity.WARNING,
    what=(
        "A whole major such as `8.x` whose members differ in shared memory, where heads are taken "
        "that fit the larger members only: a tile of 128 queries and one of 64 keys and values "
        "take 512 bytes for each element of a head, so 99 KiB hold heads of up to 198 elements. "
        "Looked at are what an entry accepts, and conditions that decide or test `head_size`. MLA "
        "is left alone, since its kernels never hold a whole head, and so is an entry whose "
        "`cases` give the smaller members smaller heads. The known members and their sizes are "
        "those of `architectures.json`; 12.x is equal (99 KiB) and never found."
    ),
    why=(
        "8.0 (A100) has 163 KiB, 8.6 and 8.9 (RTX 3090, RTX 4090) have 99. A kernel that was "
        "tried on the one dies at launch on the other: heads of 512 were accepted for every "
        "architecture, passed selection on an RTX 3090 and failed at dispatch (vLLM PR #49917)."
    ),
    bad="""accepts: {capability: [8.x, "9.0"], head_size: [64, 128, 256]}
""",
    good="""accepts:
  capability: ["8.0", "8.6", "8.9", "9.0"]
  head_size:
    cases: [{when: {capability: ["8.6", "8.9"]}, allow: [64, 128]}, {allow: [64, 128, 256]}]
""",
    check=_check,
)
