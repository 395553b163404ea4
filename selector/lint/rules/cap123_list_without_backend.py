"""CAP123: a priority list decides on an architecture on which none of its backends runs."""

from collections.abc import Iterator

from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.covering import Covering, Devices, in_words
from selector.lint.solving import OverBudgetError
from selector.manifest import Manifest, Priority
from selector.rules import Test, inputs_of
from selector.values import Finding, Phase, Position, Severity

BAD = """\
attnsel: 1
name: example
version: "1"
definitions:
  common: &common
    source: https://example.org/engine
    mla: false
    sparse: false
    accepts: &accepted
      platform: [cuda]
      capability: ["9.0"]
      dtype: [bfloat16]
      kv_cache_dtype: [auto]
      head_size: any
      block_size: any
      attn_type: [decoder]
    phases: {prefill: {}, decode: {}}
    decode_threshold: 1
    prefill_paths: [{path: mha, reason: The only way.}]
backends:
  - {<<: *common, name: hopper}
  - {<<: *common, name: portable, accepts: {<<: *accepted, capability: any}}
priorities:
  - {when: {capability: ">=9.0"}, order: [hopper], reason: The newest kernels.}
  - {order: [portable], reason: Everywhere else.}
"""


def check(context: Context) -> Iterator[Finding]:
    """Yields a finding for every list that leaves architectures without a backend."""
    covering = context.covering
    if covering is None:
        return  # CAP121 says so
    for index, one in context.own_lists():
        try:
            yield from _of_list(context, covering, index, one)
        except OverBudgetError:
            yield RULE.undecided(
                one.position, "whether a backend of this list runs wherever it decides"
            )


def _of_list(context: Context, covering: Covering, index: int, one: Priority) -> Iterator[Finding]:
    at = names_devices(context.manifest, one)
    if at is None:
        return
    dead: dict[Devices, list[Phase]] = {}
    for phase in one.orders:
        if covering.questions.names(phase, index):
            left = covering.decided(phase, index) - covering.served(phase, index)
            if left:
                dead.setdefault(left, []).append(phase)
    for devices, phases in dead.items():
        what = "it" if len(phases) == len(Phase) or len(one.orders) == 1 else f"its {phases[0]}"
        yield RULE.finding(
            at,
            f"this list decides on {in_words(devices)}, where no backend of {what} ever runs; "
            "later lists are not asked",
            "narrow its `when`, or name a backend that runs there",
        )


def names_devices(manifest: Manifest, one: Priority) -> Position | None:
    """Where a list says for which architectures it is; ``None``: it does not."""

    def names(test: Test) -> bool:
        read = inputs_of(test.field, manifest.derive)
        return not read.isdisjoint(("platform", "capability")) and not (
            test.field == "platform" and test.allowed.fixed.admits("cuda")
        )

    return next((test.position for test in one.when.tests if names(test)), None)


RULE = Rule(
    code="CAP123",
    name="list-without-backend",
    severity=Severity.ERROR,
    what=(
        "A priority list says for which architectures it is, and on one of those that it takes "
        "none of its backends ever runs what it decides about. An empty list is left alone: it "
        "says that there is nothing."
    ),
    why=(
        "Only the first list that holds is asked, so layers there get no backend, though another "
        "list may have one. Engines make this mistake with their defaults: one backend for all "
        "that is new, whose own checks refuse half of it."
    ),
    bad=BAD,
    good=BAD.replace('capability: ">=9.0"', 'capability: "9.0"'),
    check=check,
)
