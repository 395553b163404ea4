"""What two manifests decide differently: in words, as questions to paste, as JSON values."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from selector.analysis.comparing import Change, Comparison, Drawn, Region, pick_of
from selector.analysis.rerouting import PathChange, Way
from selector.analysis.space import Space
from selector.analysis.witness import Witness
from selector.domains import Domain, Value
from selector.fields import ABSENT, UNSET, Field, capability_text, show_domain
from selector.manifest import Manifest
from selector.plan.plan import Pick
from selector.report.asking import resolve_words
from selector.report.data import to_json
from selector.report.statements import allowed_words
from selector.report.wording import capabilities_words, with_separators
from selector.values import Facts, Layer

__all__ = ["Commands", "Diff", "Side", "change_words", "diff_json", "region_words"]

_KINDS = {
    "mla": {True: "MLA", False: "no MLA"},
    "sparse": {True: "sparse", False: "dense"},
}
_FEW_OFF = 4
_ALWAYS_SAID = ("mla", "sparse", "head_size", "dtype", "kv_cache_dtype", "attn_type")

Commands = tuple[str, str]


class Side(msgspec.Struct, frozen=True):
    """One of the two manifests, and the words of the command line that choose it."""

    manifest: Manifest
    chosen: tuple[str, ...]
    as_claimed: bool = False

    @property
    def name(self) -> str:
        """What it is called: as it was said, and whether its claims count."""
        said = " + ".join(w for w in self.chosen[1:] if not w.startswith("--")) or "the shipped one"
        return f"{said} as claimed" if self.as_claimed else said


class Diff(msgspec.Struct, frozen=True):
    """Two manifests and what they decide differently.

    Attributes:
        old: the manifest that is compared with.
        new: the other.
        found: the differences.
        limit: how many changes are shown, and how many regions of each.
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
        return brief_words(region, self.found.space)

    def commands(
        self, one: Mapping[str, Domain], change: Change, needed: Sequence[str] = ()
    ) -> Commands | None:
        """A question that changes so, as it is put to both; asked before it is said.

        Args:
            one: the classes of the question.
            change: from what to what.
            needed: fields that are said in any case.
        """
        witness = self.found.witness(one, change)
        if witness is None:
            return None
        return self._asked(witness, needed, lambda pick: (pick.prefill, pick.decode), change)

    def path_commands(self, change: PathChange) -> Commands | None:
        """A request that is computed in another way, as it is put to both."""
        return self._asked(change.witness, (), Way.of, (change.before, change.after))

    def _asked(
        self,
        witness: Witness,
        needed: Collection[str],
        shows: Callable[[Pick], object],
        wanted: tuple[object, object],
    ) -> Commands | None:
        """The commands that show what is wanted, with as little said as will do."""
        sides = (self.old, self.new)
        for tried in _shorter(witness, needed):
            both = [_known_to(side.manifest, tried) for side in sides]
            picks = [pick_of(s.manifest, asked) for s, asked in zip(sides, both, strict=True)]
            if [pick and shows(pick) for pick in picks] == [*wanted]:
                return (_command(self.old, both[0]), _command(self.new, both[1]))
        return None


# -- questions to paste --------------------------------------------------------------------------


def _shorter(witness: Witness, needed: Collection[str]) -> Iterator[Witness]:
    """Yields the question with as little said as may do, then with more, then with all."""
    fields, facts = witness.layer.fields, witness.facts.values
    wanted = {*needed, *_ALWAYS_SAID}
    kept = {n: v for n, v in fields.items() if n in wanted}
    loud = {n: v for n, v in fields.items() if v not in (UNSET, ABSENT) and v is not False}
    few = {n: v for n, v in facts.items() if n in wanted}
    brief = {n: v for n, v in kept.items() if n in loud or n in _ALWAYS_SAID}
    ways = ((brief, few), (kept, few), (kept, facts), ({**loud, **kept}, facts), (fields, facts))
    for said, there in ways:
        layer, seen = Layer(MappingProxyType(said)), Facts(MappingProxyType(there))
        yield msgspec.structs.replace(witness, layer=layer, facts=seen)


def _known_to(manifest: Manifest, witness: Witness) -> Witness:
    """The question without what a manifest has no word for."""
    fields = {n: v for n, v in witness.layer.fields.items() if n in manifest.vocabulary.fields}
    facts = {n: v for n, v in witness.facts.values.items() if n in manifest.facts}
    return msgspec.structs.replace(
        witness, layer=Layer(MappingProxyType(fields)), facts=Facts(MappingProxyType(facts))
    )


def _command(side: Side, asked: Witness) -> str:
    request = asked.request
    said = [*asked.layer.fields.items(), *asked.facts.values.items()]
    settings = [f"{name}={_word(value)}" for name, value in said]
    alone = (request.query_len, request.seq_len) == (1, 1)
    return shlex.join(
        resolve_words(side.chosen, asked.device, settings, None if alone else request)
    )


def _word(value: Value | Domain | None) -> str:
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


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


def region_words(region: Region, space: Space) -> list[str]:
    """What the questions of a region have in common, a text for each field."""
    manifests = space.manifests
    words = [*_device_words(region)]
    fields = {n: f for manifest in manifests for n, f in manifest.vocabulary.fields.items()}
    order = {name: index for index, name in enumerate(fields)}
    for name, values in sorted(region.sides.items(), key=lambda s: order.get(s[0], len(order))):
        only = values.only()
        if name in _KINDS and isinstance(only, bool):
            words.append(_KINDS[name][only])
        elif name in fields:
            words.append(with_separators(f"{name} {_set_words(fields[name], values)}"))
        else:
            words.append(_stands_for(name, values.admits(True), space))
    return words or ["every question"]


def brief_words(region: Region, space: Space) -> str:
    """The same on one line, with features that are off summed up."""
    off = [
        name
        for name, values in region.sides.items()
        if any(
            values.only() == manifest.vocabulary.off.get(name, "") for manifest in space.manifests
        )
        and name not in _KINDS
    ]
    if len(off) < _FEW_OFF:
        return ", ".join(region_words(region, space))
    sides = {name: values for name, values in region.sides.items() if name not in off}
    words = region_words(msgspec.structs.replace(region, sides=sides), space)
    return ", ".join([*words, f"{off[0]}, {off[1]} and {len(off) - 2} other features off"])


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
    return f"{name} {_word(holds)}"


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
            "asked": found.asked_of_paths,
            "changes": [
                {
                    "prefill": change.backends[0],
                    "decode": change.backends[1],
                    "before": to_json(change.before),
                    "after": to_json(change.after),
                    "count": change.count,
                    "asked": change.asked,
                    "witness": _commands_json(diff.path_commands(change)),
                }
                for change in found.paths
            ],
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
        "no_decision_changes": [
            {"where": where, "statements": list(statements)} for where, statements in stated.worded
        ],
    }


def _change_json(change: Change) -> dict[str, Any]:
    return {
        side: {"prefill": prefill, "decode": decode}
        for side, (prefill, decode) in zip(("before", "after"), change, strict=True)
    }


def _commands_json(commands: Commands | None) -> dict[str, str] | None:
    return None if commands is None else dict(zip(("old", "new"), commands, strict=True))


def _region_json(diff: Diff, region: Region) -> dict[str, Any]:
    return {
        "words": diff.words(region),
        "count": region.count,
        "holds": region.holds,
        "witness": _commands_json(diff.commands(region.one, region.change, [*region.sides])),
    }


def _drawn_json(diff: Diff, drawn: Drawn) -> dict[str, Any]:
    return {
        "of": drawn.of,
        "why": drawn.why,
        "number": drawn.number,
        "changed": drawn.seen,
        "at_most": drawn.at_most,
        "changes": [
            {
                **_change_json(change),
                "count": number,
                "witness": _commands_json(diff.commands(drawn.ones[change], change)),
            }
            for change, number in drawn.changes.items()
        ],
    }
