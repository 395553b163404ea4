"""CAP120: a constraint that refuses nothing which the entry accepts."""

from collections.abc import Iterator

from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.questions import Questions
from selector.lint.solving import ALWAYS, OverBudgetError, Way
from selector.manifest import Entry
from selector.rules import Constraint, When
from selector.values import Finding, Phase, Position, Severity

_STEPS = 500

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
    constraints:
      - when: {capability: "12.0"}
        require: {head_size: {max: 128}}
        code: SMALL_HEADS
        reason: Less shared memory on 12.x.
    phases: {prefill: {}, decode: {}}
    decode_threshold: 1
    prefill_paths: [{path: mha, reason: The only way.}]
"""

_Places = dict[Position, list[tuple[Entry, Phase, Constraint]]]


def check(context: Context) -> Iterator[Finding]:
    """Yields a finding for every constraint that never refuses anything."""
    questions = context.questions
    if questions is None:
        return  # CAP121 says so
    claimed: _Places | None = None
    for at, found in _constraints(questions).items():
        try:
            if any(_fires(questions, *one) for one in found):
                continue
            if claimed is None and context.claimed is not None:
                claimed = _constraints(context.claimed)
            for one in (claimed or {}).get(at, ()):
                assert context.claimed is not None
                if _fires(context.claimed, *one):
                    break
            else:
                yield from _finding(questions, at, *found[0])
        except OverBudgetError:
            yield RULE.undecided(at, "whether this constraint ever refuses anything")


def _constraints(questions: Questions) -> _Places:
    """Every constraint by its place, and where it holds: an anchor may stand for several."""
    found: _Places = {}
    for entry in questions.manifest.entries.values():
        for phase, spec in entry.phases.items():
            if not spec.disabled:
                for rule in spec.constraints:
                    found.setdefault(rule.position, []).append((entry, phase, rule))
    return found


def _fires(questions: Questions, entry: Entry, phase: Phase, rule: Constraint) -> bool:
    """Whether a constraint refuses something that an entry accepts; with a source, anything."""
    way = Way((), (questions.broken(rule),))
    if not rule.source:
        way &= questions.accepted(entry, phase)
    return questions.solver.solve(way, _STEPS) is not None


def _finding(
    questions: Questions, at: Position, entry: Entry, phase: Phase, rule: Constraint
) -> Iterator[Finding]:
    accepted = ALWAYS if rule.source else questions.accepted(entry, phase)
    here = accepted & questions.all_hold(rule.when)
    if questions.solver.solve(here, _STEPS) is not None:
        yield RULE.finding(
            at,
            f"this constraint never refuses anything: {_no(rule, entry)} that it forbids",
            "drop it, or correct it",
        )
        return
    for test in rule.when.tests:
        alone = accepted & questions.all_hold(When((test,)))
        if questions.solver.solve(alone, _STEPS) is None:
            stated = None if rule.source else entry.phases[phase].accepts.get(test.field)
            where = f" (line {stated.rules[0].result.position.line})" if stated else ""
            message = f"this constraint never fires: {_no(rule, entry, test.field)}{where}"
            yield RULE.finding(test.position, message, "drop it, or correct its `when`")
            return
    message = f"this constraint never fires: {_no(rule, entry)} that meets its `when`"
    yield RULE.finding(at, message, "drop it, or correct its `when`")


def _no(rule: Constraint, entry: Entry, field: str = "") -> str:
    """Who has nothing to refuse: the entry, or any layer at all."""
    if field:
        return (
            f"no layer has such a {field}"
            if rule.source
            else f"{entry.name} accepts no such {field}"
        )
    return "no layer is one" if rule.source else f"{entry.name} accepts nothing"


RULE = Rule(
    code="CAP120",
    name="constraint-never-fires",
    severity=Severity.WARNING,
    what=(
        "A constraint refuses nothing: what its `when` speaks of is not accepted by the entry in "
        "the first place, or everything that the entry accepts meets what it requires. What an "
        "engine only claims is looked at too. A constraint with a source of its own restates a "
        "check of the engine's code, whose reason an answer carries beside others: it is found "
        "only if no layer at all can break it."
    ),
    why=(
        "Either it is dead weight, or it was meant for something else: a misread capability or a "
        "value of the wrong field, and the refusal that somebody counts on never comes."
    ),
    bad=BAD,
    good=BAD.replace('when: {capability: "12.0"}', 'when: {capability: "10.0"}').replace(
        "on 12.x", "on 10.0"
    ),
    check=check,
)
