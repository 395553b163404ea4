"""Holds a draft of ``attnsel extract`` against a manifest that was written by hand.

    PYTHONPATH=. python tools/draft_oracle.py vllm-0.33.0-….whl [vllm-0.33.0]

Each value that the reader asks a class with, of each field, on each known compute capability that
either of the two runs on, is one decision: accepted, refused, or dependent on what is not known of
the machine. Prints how many decisions are the same, how many differ where the draft says that there
is something left to do, and how many differ where it does not; as claimed, and as it works.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from selector.binding import Selector
from selector.domains import Value
from selector.drift.drafting import Draft, draft_manifest
from selector.drift.machines import Machine
from selector.drift.reader import read_engine
from selector.drift.reading import EngineReading
from selector.drift.saying import CAPABILITIES, FUTURE, value_of
from selector.fields import parse_capability
from selector.loading import loads
from selector.manifest import Entry, Manifest


class Decision(NamedTuple):
    """What the draft and the other manifest say of one value."""

    entry: str
    field: str
    value: Value
    capability: str
    drafted: bool | None
    stated: bool | None


def decisions(draft: Manifest, other: Manifest, reading: EngineReading) -> Iterator[Decision]:
    """Yields every decision about the entries that both have."""
    for capability in (one for one in reading.capabilities if one != FUTURE):
        machines = [Machine(one, reading.platform, capability) for one in (draft, other)]
        for name, entry in draft.entries.items():
            if (stated := other.entries.get(name)) is None:
                continue
            code = parse_capability(capability)
            here = [
                on.accepts(e, "capability", code)
                for on, e in zip(machines, (entry, stated), strict=True)
            ]
            yield Decision(name, "capability", capability, capability, here[0], here[1])
            if here == [False, False]:
                continue
            for field, value in asked(entry, reading):
                if any(field not in on.fields for on in machines):
                    continue
                said = [
                    on.accepts(e, field, value)
                    for on, e in zip(machines, (entry, stated), strict=True)
                ]
                yield Decision(name, field, value, capability, said[0], said[1])


def asked(entry: Entry, reading: EngineReading) -> Iterator[tuple[str, Value]]:
    """Yields the fields and values that the entry's class was asked with."""
    cls = reading.named()[entry.name].cls
    words = reading.vocabulary
    for field, name in words.values.items():
        attribute = cls.attributes.get(name) if cls is not None else None
        for raw in attribute.asked if attribute is not None else ():
            yield field, value_of(raw)
    for field, (name, value) in words.features.items():
        if cls is not None and name in cls.attributes:
            yield field, value


def compare(draft: Draft, drafted: Manifest, other: Manifest, reading: EngineReading) -> None:
    """Prints the counts, and what differs without a word in the draft."""
    kinds: Counter[str] = Counter()
    told: Counter[str] = Counter()
    silent: Counter[tuple[str, str, str]] = Counter()
    for one in decisions(drafted, other, reading):
        if one.drafted is one.stated:
            kinds["the same"] += 1
        elif any(f.message.startswith(f"{one.entry} {one.field}: ") for f in draft.findings):
            kinds["differ, and the draft says TODO"] += 1
            told[one.field] += 1
        else:
            kinds["differ"] += 1
            silent[one.entry, one.field, f"{one.drafted} for {one.stated}"] += 1
    for kind, count in kinds.most_common():
        print(f"  {kind:32} {count:7,}")
    print(f"  TODO: {', '.join(f'{field} {count}' for field, count in told.most_common())}")
    for (entry, field, how), count in sorted(silent.items()):
        print(f"    {entry} {field}: {how} ({count} decisions)")


def main(wheel: str, name: str = "vllm-0.33.0") -> None:
    """Prints the comparison."""
    other = Selector.load(name).manifest
    reading = read_engine(other.ref.name, wheel, CAPABILITIES)
    draft = draft_manifest(reading, "draft")
    drafted = loads(draft.text, "draft")
    print(f"{len(drafted.entries)} entries drafted, {len(other.entries)} written by hand")
    print(
        f"  not drafted: {', '.join(sorted(other.entries.keys() - drafted.entries.keys())) or '-'}"
    )
    print("as claimed:")
    compare(draft, drafted.as_claimed(), other.as_claimed(), reading)
    print("as it works:")
    compare(draft, drafted, other, reading)
    for field in ("mla", "sparse", "dense_prefill"):
        both = drafted.entries.keys() & other.entries.keys()
        same = [
            n
            for n in both
            if getattr(drafted.entries[n], field) is getattr(other.entries[n], field)
        ]
        print(f"{field}: the same for {len(same)} of {len(both)} entries")
        print(f"  other: {', '.join(sorted(both - set(same))) or '-'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
