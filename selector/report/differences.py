"""What two manifests decide differently: in words, and as JSON values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from selector.analysis.aside import Aside
from selector.analysis.comparing import Change, Comparison, Drawn, Region
from selector.analysis.paths import PathChange
from selector.analysis.rerouting import DrawnPaths, way_of
from selector.analysis.space import Space
from selector.domains import Domain
from selector.fields import ABSENT, Field, capability_text, show_domain
from selector.plan.plan import Pick
from selector.report.data import to_json
from selector.report.showing import Shown, Side, path_positions, show_question
from selector.report.statements import allowed_words
from selector.report.wording import capabilities_words, with_separators

__all__ = ["Diff", "aside_words", "change_words", "diff_json", "region_words", "split_regions"]

_KINDS = {
    "mla": {True: "MLA", False: "no MLA"},
    "sparse": {True: "sparse", False: "dense"},
}
_FEW_OFF = 4
_LONGEST_SET = 60
"""Characters of a set of values, on a line that a person reads."""


class Diff(msgspec.Struct, frozen=True):
    """Two manifests and what they decide differently.

    Attributes:
        old: the manifest that is compared with.
        new: the other.
        found: the differences.
        limit: how many changes are shown, and how many regions of each; at least 1.
    """

    old: Side
    new: Side
    found: Comparison
    limit: int

    @property
    def changes(self) -> list[tuple[Change, int, list[Region]]]:
        """The changes, the most frequent first, with all of their regions."""
        regions: dict[Change, list[Region]] = {}
        for region in self.found.regions:
            regions.setdefault(region.change, []).append(region)
        return [(change, n, regions[change]) for change, n in self.found.totals.items()]

    def words(self, region: Region) -> list[str]:
        """What the questions of a region have in common."""
        assert self.found.space is not None
        return region_words(region, self.found.space)

    def brief(self, region: Region) -> str:
        """The same on one line."""
        assert self.found.space is not None
        return _brief_words(region, self.found.space)

    def shown(
        self, one: Mapping[str, Domain], change: Change, needed: Sequence[str] = ()
    ) -> Shown | None:
        """A question that changes so, as it is put to both; asked before it is said.

        Args:
            one: the classes of the question.
            change: from what to what.
            needed: fields that are said in any case.
        """
        witness = self.found.witness(one, change)
        if witness is None:
            return None
        decides = attrgetter("prefill", "decode")
        return show_question((self.old, self.new), witness, needed, decides, change)

    def shown_path(self, change: PathChange, region: Region | None = None) -> Shown | None:
        """A question that is computed in another way, as it is put to both; asked before.

        Args:
            change: from what to what.
            region: of the change; without one, the question that was drawn.
        """
        witness = self.found.path_witness(change, region)
        if witness is None:
            return None
        needed = [] if region is None else [*region.sides]
        wanted = [(change.backends, way) for way in (change.before, change.after)]
        return show_question((self.old, self.new), witness, needed, _computed, (*wanted,))


def _computed(pick: Pick) -> object:
    """The backends of a choice, and how they compute."""
    return (pick.prefill, pick.decode), way_of(pick)


# -- words ---------------------------------------------------------------------------------------


def change_words(change: Change) -> str:
    """``FA2 → none``; ``prefill FA2 → FA3 (decode FA2)``."""
    (here, here_too), (there, there_too) = change
    if here == here_too and there == there_too:
        return f"{here or 'none'} → {there or 'none'}"
    prefill = f"prefill {here or 'none'} → {there or 'none'}"
    decode = f"decode {here_too or 'none'} → {there_too or 'none'}"
    if here == there:
        return f"{decode} (prefill {here or 'none'})"
    if here_too == there_too:
        return f"{prefill} (decode {here_too or 'none'})"
    return f"{prefill}, {decode}"


def region_words(region: Region, space: Space, longest: int | None = None) -> list[str]:
    """What the questions of a region have in common, a text for each field.

    Args:
        region: the questions.
        space: all questions.
        longest: characters of a set of values; what is left out beyond shows as ``…``.
    """
    manifests = space.manifests
    words = [*_device_words(region)]
    fields = {n: f for manifest in manifests for n, f in manifest.vocabulary.fields.items()}
    order = {name: index for index, name in enumerate(fields)}
    for name, values in sorted(region.sides.items(), key=lambda s: order.get(s[0], len(order))):
        only = values.only()
        if name in _KINDS and isinstance(only, bool):
            words.append(_KINDS[name][only])
        elif name in fields:
            shown = _cut(_set_words(fields[name], values), longest)
            words.append(with_separators(f"{name} {shown}"))
        else:
            words.append(_stands_for(name, values.admits(True), space))
    return words or ["every question"]


def _cut(text: str, longest: int | None) -> str:
    if longest is None or len(text) <= longest:
        return text
    return f"{text[:longest].rpartition(', ')[0]}, …"


def _brief_words(region: Region, space: Space) -> str:
    """The same on one line, with features that are off summed up and long sets cut."""
    off = [
        name
        for name, values in region.sides.items()
        if any(
            values.only() == manifest.vocabulary.off.get(name, "") for manifest in space.manifests
        )
        and name not in _KINDS
    ]
    if len(off) < _FEW_OFF:
        return ", ".join(region_words(region, space, _LONGEST_SET))
    sides = {name: values for name, values in region.sides.items() if name not in off}
    words = region_words(msgspec.structs.replace(region, sides=sides), space, _LONGEST_SET)
    return ", ".join([*words, f"{off[0]}, {off[1]} and {len(off) - 2} other features off"])


def split_regions(regions: Sequence[Region]) -> tuple[Region | None, list[Region]]:
    """What several regions all have in common, if anything, and what is left of each."""
    first, *others = regions
    if not others:
        return None, [first]
    same = {n: s for n, s in first.sides.items() if all(r.sides.get(n) == s for r in others)}
    there = first.devices if all(r.devices == first.devices for r in others) else ()
    left = [
        msgspec.structs.replace(
            region,
            sides={n: s for n, s in region.sides.items() if n not in same},
            devices=() if there else region.devices,
        )
        for region in regions
    ]
    shared = msgspec.structs.replace(first, sides=same, devices=there)
    return (shared if same or there else None), left


def _set_words(field: Field, values: Domain) -> str:
    """A set in the fewest words: as it was joined, cut out of all values, or as what is missing."""
    universe = field.universe()
    missing = universe - values
    ways = [show_domain(field, one) for one in (values, universe - missing)]
    if not values.spans:
        ways.append(f"not {show_domain(field, missing)}")
    return min(ways, key=len)


def _device_words(region: Region) -> Iterator[str]:
    """Yields the architectures, and the platforms that have none."""
    codes = sorted(
        span.low
        for platform, capability in region.devices
        if platform.admits("cuda")
        for span in capability.spans
        if span.low is not None
    )
    others = [p for p, c in region.devices if c.admits(ABSENT) and p != Domain.of("cuda")]
    names = sorted(str(n) for p in others for n in p.names if n != "cuda")
    if codes:
        shown = capabilities_words(", ".join(map(capability_text, codes)))
        yield f"compute capability {shown}{' or' if names else ''}"
    if names:
        yield f"platform {', '.join(names)}"


def _stands_for(name: str, holds: bool, space: Space) -> str:
    """A bound that another field gives, or a requirement, in words."""
    for manifest, rules in zip(space.manifests, space.rules, strict=True):
        if (test := rules.relations.get(name)) is not None:
            said = allowed_words(test.field, test.allowed, manifest.vocabulary)
            return f"{test.field} {'' if holds else 'not '}{said}"
        if (need := rules.requirements.get(name)) is not None:
            return f"{need.fact} {'' if holds else 'not '}{need.specifier or 'installed'}"
    return f"{name} {str(holds).lower()}"


def aside_words(aside: Aside) -> tuple[str, tuple[str, ...], str]:
    """What was not compared, of which backends, and its fields or capabilities."""
    if aside.capabilities is None:
        return "becomes" if aside.coerced else "together", aside.backends, ", ".join(aside.coerced)
    said = []
    for span in aside.capabilities.spans:
        low, high = (None if end is None else capability_text(end) for end in (span.low, span.high))
        said.append(f"from {low}" if high is None else f"{low}–{high}" if low != high else str(low))
    return "capability", aside.backends, ", ".join(said)


# -- JSON ----------------------------------------------------------------------------------------


def diff_json(diff: Diff) -> dict[str, Any]:
    """Everything, as JSON values; regions and changes up to the limit."""
    found, stated = diff.found, diff.found.stated
    return {
        "old": {**to_json(diff.old.manifest.ref), "as_claimed": diff.old.as_claimed},
        "new": {**to_json(diff.new.manifest.ref), "as_claimed": diff.new.as_claimed},
        "same_meaning": found.space is None,
        "different": found.is_different,
        "questions": found.able,
        "changed": found.changed,
        "changes": [
            {
                **_change_json(change),
                "count": number,
                "regions_in_all": len(regions),
                "regions": [
                    _region_json(diff, region)
                    for region in (regions[: diff.limit] if place < diff.limit else ())
                ],
            }
            for place, (change, number, regions) in enumerate(diff.changes)
        ],
        "drawn": [_drawn_json(diff, drawn) for drawn in found.drawn],
        "paths": {
            "questions": found.able_of_paths,
            "changes": [
                _path_json(diff, change, place < diff.limit)
                for place, change in enumerate(found.paths)
            ],
            "drawn": [_drawn_counts_json(drawn) for drawn in found.drawn_paths],
        },
        "models": [
            {
                "model": one.model,
                "layers": one.group,
                "archs": list(one.archs),
                **_change_json((one.before, one.after)),
                "paths": list(one.paths) if one.paths else None,
            }
            for one in found.models
        ],
        "backends": {
            "added": list(stated.added),
            "removed": list(stated.removed),
            "pinned": [{"backend": b, "what": w} for b, w in stated.pinned],
            "unpinned": [{"backend": b, "what": w} for b, w in stated.unpinned],
        },
        "defaults": list(stated.defaults),
        "space_differs": stated.space,
        "left_out": list(found.left_out),
        "not_compared": [
            {"what": what, "backends": list(backends), "words": words}
            for what, backends, words in map(aside_words, found.asides)
        ],
        "no_decision_changes": [
            {"where": where, "statements": list(statements)} for where, statements in stated.worded
        ],
    }


def _change_json(change: Change) -> dict[str, Any]:
    return {
        side: {"prefill": prefill, "decode": decode}
        for side, (prefill, decode) in zip(("before", "after"), change, strict=True)
    }


def _witness_json(shown: Shown | None) -> dict[str, Any] | None:
    if shown is None:
        return None
    reasons = [to_json(reason) for reason in shown.reasons]
    return {**dict(zip(("old", "new"), shown.commands, strict=True)), "reasons": reasons}


def _path_json(diff: Diff, change: PathChange, in_full: bool) -> dict[str, Any]:
    places = [(region, diff.shown_path(change, region)) for region in change.regions[: diff.limit]]
    first = places[0][1] if places else diff.shown_path(change)
    old, new = ([], []) if first is None else map(path_positions, first.answers)
    return {
        "prefill": change.backends[0],
        "decode": change.backends[1],
        "before": to_json(change.before),
        "after": to_json(change.after),
        "count": change.count,
        "asked": change.asked,
        "drawn": not change.regions,
        "regions_in_all": len(change.regions),
        "regions": [_place_json(diff, *place) for place in (places if in_full else ())],
        "witness": _witness_json(first),
        "lines": {"old": to_json(old), "new": to_json(new)},
    }


def _drawn_counts_json(drawn: Drawn | DrawnPaths) -> dict[str, Any]:
    return {
        "of": drawn.of,
        "why": drawn.why,
        "number": drawn.number,
        "changed": drawn.seen,
        "at_most": drawn.at_most,
    }


def _region_json(diff: Diff, region: Region) -> dict[str, Any]:
    return _place_json(diff, region, diff.shown(region.one, region.change, [*region.sides]))


def _place_json(diff: Diff, region: Region, shown: Shown | None) -> dict[str, Any]:
    return {
        "words": diff.words(region),
        "count": region.count,
        "holds": region.holds,
        "witness": _witness_json(shown),
    }


def _drawn_json(diff: Diff, drawn: Drawn) -> dict[str, Any]:
    return {
        **_drawn_counts_json(drawn),
        "changes": [
            {
                **_change_json(change),
                "count": number,
                "witness": _witness_json(diff.shown(drawn.ones[change], change)),
            }
            for change, number in drawn.changes.items()
        ],
    }
