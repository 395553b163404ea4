"""CAP128: a rule of a first match that no question comes to."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.questions import Questions
from selector.lint.solving import ALWAYS, OverBudgetError, Way
from selector.manifest import Entry
from selector.rules import FirstMatch
from selector.rules import Rule as Stated
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
      head_size:
        cases:
          - {when: {capability: ">=9.0"}, allow: {max: 256}}
          - {when: {capability: "10.0"}, allow: {max: 512}}
          - {allow: {max: 128}}
      block_size: any
      attn_type: [decoder]
    phases: {prefill: {}, decode: {}}
    decode_threshold: 1
    prefill_paths: [{path: mha, reason: The only way.}]
"""


class _Place(NamedTuple):
    """A rule among those before it, and what else must hold."""

    whose: str
    around: Way
    rules: Sequence[Stated[Any]]
    place: int


def check(context: Context) -> Iterator[Finding]:
    """Yields a finding for every rule of a first match that is never the first to hold."""
    questions = context.questions
    if questions is None:
        return  # CAP121 says so
    places: dict[Position, list[_Place]] = {}
    for one in _all(questions):
        places.setdefault(one.rules[one.place].position, []).append(one)
    for at, found in places.items():
        try:
            if any(_is_reached(questions, one) for one in found):
                continue
            yield RULE.finding(at, *_words(questions, found[0]))
        except OverBudgetError:
            yield RULE.undecided(at, "whether any question comes to this rule")


def _all(questions: Questions) -> Iterator[_Place]:
    """Yields every rule that has others beside it; the last one of a match may be a fallback."""
    manifest = questions.manifest
    for name, derived in manifest.derive.items():
        yield from _of_match(name, ALWAYS, derived)
    for entry in manifest.entries.values():
        for phase, spec in entry.phases.items():
            if spec.disabled:
                continue
            for field, match in spec.accepts.items():
                if len(match.rules) > 1:
                    around = _around(questions, entry, phase, field)
                    yield from _of_match(entry.name, around, match)
            for coerced in entry.coerce.values():
                yield from _of_match(entry.name, questions.accepted(entry, phase), coerced)
        if Phase.DECODE in entry.phases and entry.decode_threshold is not None:
            around = questions.accepted(entry, Phase.DECODE)
            yield from _of_match(entry.name, around, entry.decode_threshold)


def _of_match(whose: str, around: Way, match: FirstMatch[Any]) -> Iterator[_Place]:
    for index, rule in enumerate(match.rules):
        if rule.when.tests and len(match.rules) > 1:
            yield _Place(whose, around, match.rules, index)


def _around(questions: Questions, entry: Entry, phase: Phase, field: str) -> Way:
    """That an entry accepts every other field."""
    found = ALWAYS
    for name, match in entry.phases[phase].accepts.items():
        if name != field:
            found &= questions.accepts(match)
    return found


def _is_reached(questions: Questions, one: _Place) -> bool:
    way = one.around & questions.first(one.rules, one.place)
    return questions.solver.solve(way, _STEPS) is not None


def _words(questions: Questions, one: _Place) -> tuple[str, str]:
    """What is wrong, and what to do."""
    rule = one.rules[one.place]
    alone = one.around & questions.all_hold(rule.when)
    if questions.solver.solve(alone, _STEPS) is None:
        message = (
            f"no question comes to this rule: nothing that {one.whose} is asked meets its `when`"
        )
        return message, "correct its `when`, or drop it"
    lines = [
        str(earlier.position.line)
        for earlier in one.rules[: one.place]
        if questions.solver.solve(alone & questions.unless(earlier.when), _STEPS) is None
    ]
    before = f"the one on line {lines[0]} takes" if lines else "those before it take"
    return f"no question comes to this rule: {before} all of it", "put it before, or drop it"


RULE = Rule(
    code="CAP128",
    name="rule-never-reached",
    severity=Severity.WARNING,
    what=(
        "A rule of a first match (the cases of what a field may be, a derived or a coerced value, "
        "a decode threshold) is never the first to hold, whatever is asked of its entry: rules "
        "before it take all of it, or nothing that the entry accepts meets its `when`."
    ),
    why=(
        "What it states never takes effect. Often the order is wrong: the general case stands "
        "before the special one."
    ),
    bad=BAD,
    good=BAD.replace('capability: ">=9.0"', 'capability: "9.0"').replace(
        "          - {allow: {max: 128}}\\n", ""
    ),
    check=check,
)
