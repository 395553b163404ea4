"""CAP126: architectures on which kinds of layers get no backend that they get elsewhere."""

from collections.abc import Iterator

from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.covering import Covering, Devices, in_words
from selector.lint.kinds import KindOf, in_words_of, kind_way, kinds_served
from selector.lint.solving import OverBudgetError
from selector.manifest import Invariant
from selector.values import Finding, Phase, Severity

BAD = """\
attnsel: 1
name: example
version: "1"
definitions:
  common: &common
    source: https://example.org/engine
    sparse: false
    accepts: &accepted
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
backends:
  - {<<: *common, name: paged, mla: false}
  - {<<: *common, name: latent, mla: true, accepts: {<<: *accepted, capability: ["9.0"]}}
priorities:
  - {order: [paged, latent], reason: There is one of each kind.}
"""


def check(context: Context) -> Iterator[Finding]:
    """Yields one finding with all kinds of layers that get no backend on some architectures."""
    covering = context.covering
    if covering is None or "priorities" not in context.tree:
        return
    at = context.tree.keys_at["priorities"]
    if not context.is_own(at) or context.overlays:
        return
    try:
        gaps = _gaps(covering, context.manifest.invariants)
    except OverBudgetError:
        yield RULE.undecided(at, "on which architectures layers get no backend")
        return
    if gaps:
        said = [f"{in_words_of(kinds)} on {in_words(devices)}" for devices, kinds in gaps.items()]
        yield RULE.finding(
            at,
            f"no backend for {'; '.join(said)}, though other layers have one there",
            "name one, or say in an invariant that there is none (`never: {backend: any}`)",
        )


def _gaps(
    covering: Covering, promises: tuple[Invariant, ...]
) -> dict[Devices, list[tuple[KindOf, tuple[Phase, ...]]]]:
    """Devices without a backend → the kinds of layers and phases that have none there."""
    served = kinds_served(covering)
    everywhere = frozenset().union(*served.values())
    found: dict[tuple[Devices, KindOf], list[Phase]] = {}
    for (kind, phase), devices in served.items():
        left = everywhere - devices
        if left and (left := _not_promised(covering, kind, left, promises)):
            found.setdefault((left, kind), []).append(phase)
    gaps: dict[Devices, list[tuple[KindOf, tuple[Phase, ...]]]] = {}
    for (devices, kind), phases in found.items():
        gaps.setdefault(devices, []).append((kind, (*phases,)))
    return gaps


def _not_promised(
    covering: Covering, kind: KindOf, devices: Devices, promises: tuple[Invariant, ...]
) -> Devices:
    """The devices for which no invariant says that such layers get no backend there."""
    questions = covering.questions
    way = kind_way(covering, kind)
    for promise in promises:
        if promise.never_backends >= questions.manifest.entries.keys():
            way &= questions.unless(promise.when)
    return covering.devices(way, devices)


RULE = Rule(
    code="CAP126",
    name="architecture-without-backend",
    severity=Severity.WARNING,
    what=(
        "A kind of layer (MLA or not, sparse or not, what it attends to) gets a backend on some "
        "architectures and never on others, on which other layers have one. One finding lists all; "
        "an invariant that says `never: {backend: any}` of them is heeded."
    ),
    why=(
        "A capability that was forgotten in a list looks the same as one that is not there. Said "
        "in an invariant, it is known to be meant, and `attnsel verify` proves it."
    ),
    bad=BAD,
    good=BAD.replace('capability: ["9.0"]', 'capability: ["9.0", "10.0"]'),
    check=check,
)
