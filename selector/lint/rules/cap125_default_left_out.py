"""CAP125: a priority list refuses layers that another backend of the manifest would run."""

from collections.abc import Iterator

from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.covering import Covering
from selector.lint.quiet import quietest, said_in
from selector.lint.rules.cap123_list_without_backend import names_devices
from selector.lint.solving import OverBudgetError, Way
from selector.lint.witnesses import ask, question_of
from selector.manifest import Priority
from selector.values import Finding, Outcome, Phase, Severity

_STEPS = 500

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
      capability: ["8.9", "9.0"]
      dtype: [bfloat16]
      kv_cache_dtype: [auto]
      head_size: any
      block_size: any
      attn_type: [decoder]
    phases: {prefill: {}, decode: {}}
    decode_threshold: 1
    prefill_paths: [{path: mha, reason: The only way.}]
backends:
  - {<<: *common, name: fast}
  - {<<: *common, name: portable, accepts: {<<: *accepted, sink: any}}
priorities:
  - {when: {capability: "9.0"}, order: [fast, portable], reason: The fastest first.}
  - {order: [fast], reason: The fastest elsewhere.}
"""


def check(context: Context) -> Iterator[Finding]:
    """Yields a finding for every list that leaves layers to nobody, though somebody would do."""
    covering = context.covering
    if covering is None:
        return  # CAP121 says so
    for index, one in context.own_lists():
        try:
            found = next(_of_list(covering, index, one), None)
        except OverBudgetError:
            yield RULE.undecided(
                one.position, "whether this list refuses what another backend would run"
            )
            continue
        if found is not None:
            yield found


def _of_list(covering: Covering, index: int, one: Priority) -> Iterator[Finding]:
    questions = covering.questions
    for phase in one.orders:
        names = questions.names(phase, index)
        where = covering.all
        if names_devices(questions.manifest, one) is not None:
            where = covering.served(phase, index)  # CAP123 tells the others
        if not names or not where:
            continue
        nobody = Way((), tuple(questions.refused(name, phase) for name in names))
        refused = questions.decides(phase, index) & covering.on(where) & nobody
        for name in _others(covering, phase, index):
            way = refused & questions.alive(name, phase)
            if questions.solver.solve(way, _STEPS) is not None:
                yield from _finding(covering, phase, index, name, way)


def _others(covering: Covering, phase: Phase, index: int) -> dict[str, None]:
    """The entries that other lists name for a phase, and this one does not."""
    questions = covering.questions
    mine = questions.names(phase, index)
    lists = (questions.names(phase, place) for place in covering.lists(phase))
    return dict.fromkeys(name for names in lists for name in names if name not in mine)


def _finding(
    covering: Covering, phase: Phase, index: int, name: str, way: Way
) -> Iterator[Finding]:
    """Yields the finding, once the definition has given the same answer."""
    questions = covering.questions
    manifest = questions.manifest
    left = questions.solver.solve(quietest(questions, way), _STEPS)
    if left is None:
        return
    asked = question_of(questions, left)
    answer = ask(manifest, (*questions.names(phase, index), name), asked)
    if answer is None:
        return
    choice = answer.prefill if phase is Phase.PREFILL else answer.decode
    (candidate,) = (one for one in answer.candidates if one.backend == name)
    verdict = candidate.prefill if phase is Phase.PREFILL else candidate.decode
    if choice.possible or verdict is None or verdict.outcome is not Outcome.ELIGIBLE:
        return
    layer = said_in(questions, left)
    on = asked.device.capability or asked.device.platform
    line = manifest.entries[name].position.line
    yield RULE.finding(
        manifest.priorities[index].position,
        f"no backend of this list runs {phase} with {layer} on {on}, and {name} (line {line}) "
        "would; later lists are not asked",
        f"name {name} at its end, or say in its `when` what it is not for",
    )


RULE = Rule(
    code="CAP125",
    name="default-left-out",
    severity=Severity.WARNING,
    what=(
        "A priority list refuses layers altogether that a backend would run which other lists name "
        "and this one does not. One such layer is said; the definition was asked about it."
    ),
    why=(
        "A default is often stated for the plain case, and models with sinks, soft caps or another "
        "cache come later. Where the list is the first that holds they get nothing, or an engine "
        "asserts at start (SGLang PR 23139: attention sinks on 8.9 went to FlashInfer, which takes "
        "none)."
    ),
    bad=BAD,
    good=BAD.replace("order: [fast], reason", "order: [fast, portable], reason"),
    check=check,
)
