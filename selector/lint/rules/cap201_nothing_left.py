"""CAP201: what is denied leaves a kind of layer without any backend."""

from collections.abc import Iterator

from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.covering import Covering, Devices, in_words
from selector.lint.kinds import KindOf, in_words_of, kinds_served
from selector.lint.solving import OverBudgetError
from selector.manifest import Denial
from selector.values import Finding, Phase, Severity
from selector.words import listed_and

BAD = """\
attnsel: 1
name: example
version: "1"
backends:
  - name: paged
    source: https://example.org/engine
    mla: false
    sparse: false
    accepts:
      platform: [cuda]
      capability: ["9.0", "10.0"]
      dtype: [bfloat16]
      kv_cache_dtype: [auto]
      head_size: any
      block_size: any
      attn_type: [decoder]
    phases: {prefill: {}, decode: {}}
    decode_threshold: 1
    prefill_paths: [{path: mha, reason: The only way.}]
priorities:
  - {order: [paged], reason: There is only one.}
deny:
  - {backend: paged, when: {capability: ["9.0", "10.0"]}, reason: A driver's fault.}
"""

_Gaps = dict[Denial, dict[Devices, list[tuple[KindOf, tuple[Phase, ...]]]]]


def check(context: Context) -> Iterator[Finding]:
    """Yields a finding for every denial that takes the last backend of a kind of layer."""
    manifest, free, policed = context.manifest, context.covering, context.covering_policed
    if not manifest.deny or free is None or policed is None:
        return
    try:
        gaps = _gaps(free, policed, manifest.deny)
    except OverBudgetError:
        yield RULE.undecided(
            manifest.deny[0].position, "whether what is denied leaves every layer a backend"
        )
        return
    for denial, found in gaps.items():
        if context.is_own(denial.position):
            said = [f"{in_words_of(kinds)} on {in_words(where)}" for where, kinds in found.items()]
            others = [
                f"{one.backend} (line {one.position.line})"
                for one in manifest.deny
                if one.backend != denial.backend and _concerns(policed, one, found)
            ]
            beside = f", with {listed_and(dict.fromkeys(others))}" if others else ""
            yield RULE.finding(
                denial.position,
                f"denying {denial.backend}{beside} leaves no backend for {'; '.join(said)}",
                "narrow its `when`, or leave one",
            )


def _gaps(free: Covering, policed: Covering, deny: tuple[Denial, ...]) -> _Gaps:
    """The last denial that takes a backend → the devices and kinds that have none left."""
    before, after = kinds_served(free), kinds_served(policed)
    found: _Gaps = {}
    lost: dict[tuple[Devices, KindOf], list[Phase]] = {}
    for (kind, phase), devices in before.items():
        left = devices - after.get((kind, phase), frozenset())
        if left:
            lost.setdefault((left, kind), []).append(phase)
    for (devices, kind), phases in lost.items():
        gap = {devices: [(kind, (*phases,))]}
        last = next(one for one in reversed(deny) if _concerns(policed, one, gap))
        found.setdefault(last, {}).setdefault(devices, []).append((kind, (*phases,)))
    return found


def _concerns(
    covering: Covering,
    denial: Denial,
    gaps: dict[Devices, list[tuple[KindOf, tuple[Phase, ...]]]],
) -> bool:
    """Whether a denial is about such layers on such devices."""
    entry = covering.questions.manifest.entries[denial.backend]
    if all((entry.mla, entry.sparse) != kind[:2] for kinds in gaps.values() for kind, _ in kinds):
        return False
    way = covering.questions.all_hold(denial.when)
    return any(covering.devices(way, devices) for devices in gaps)


RULE = Rule(
    code="CAP201",
    name="nothing-left",
    severity=Severity.WARNING,
    what=(
        "What `deny` says, in a manifest or in an overlay, leaves a kind of layer without any "
        "backend on some architecture, though lists name backends that would run it there."
    ),
    why=(
        "A denial is meant to move a layer to the next backend. Where it was the last one, every "
        "model of that kind is refused instead."
    ),
    bad=BAD,
    good=BAD.replace('when: {capability: ["9.0", "10.0"]}', "when: {head_size: 64}"),
    check=check,
)
