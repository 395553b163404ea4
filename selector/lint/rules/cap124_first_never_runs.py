"""CAP124: the first backend of a list never runs on an architecture that the list names."""

from collections.abc import Iterator
from contextlib import suppress

from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.covering import Covering, Devices, in_words
from selector.lint.rules.cap123_list_without_backend import BAD as _BAD
from selector.lint.rules.cap123_list_without_backend import names_devices
from selector.lint.solving import OverBudgetError
from selector.manifest import Priority
from selector.values import Finding, Phase, Severity

_NAMED = _BAD.replace("order: [hopper]", "order: [hopper, portable]")


def check(context: Context) -> Iterator[Finding]:
    """Yields a finding for every list whose default never runs somewhere that it names."""
    covering = context.covering
    if covering is None:
        return  # CAP121 says so
    for index, one in context.own_lists():
        if names_devices(context.manifest, one) is not None:
            with suppress(OverBudgetError):  # CAP123 says so
                yield from _of_list(context, covering, index, one)


def _of_list(context: Context, covering: Covering, index: int, one: Priority) -> Iterator[Finding]:
    dead: dict[tuple[str, Devices], list[Phase]] = {}
    for phase in one.orders:
        names = covering.questions.names(phase, index)
        if len(names) > 1:
            served = covering.served(phase, index)
            left = served - covering.runs(phase, index, names[0])
            if left:
                dead.setdefault((names[0], left), []).append(phase)
    for (name, devices), phases in dead.items():
        yield RULE.finding(
            context.name_at(index, phases[0], name),
            f"the list is for {in_words(devices)} too, where {name} never runs: what follows it is "
            "the default there, and nothing says so",
            "give those a list of their own",
        )


RULE = Rule(
    code="CAP124",
    name="first-never-runs",
    severity=Severity.WARNING,
    what=(
        "A priority list names the architectures it is for, and on one of them its first backend "
        "never runs anything that the list decides about; another one of the list does."
    ),
    why=(
        "The default of that architecture is then chosen by accident. Kernels built for 10.0 do "
        "not run on 12.0, though both are called Blackwell."
    ),
    bad=_NAMED.replace('capability: ">=9.0"', 'capability: ["9.0", "12.0"]'),
    good=_NAMED.replace('capability: ">=9.0"', 'capability: "9.0"'),
    check=check,
)
