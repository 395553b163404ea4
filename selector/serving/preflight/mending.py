"""The smallest change of a command after which everything starts.

The resolver names what would mend the first refusal; each change is made in the command itself,
which is read and judged again. So a change that helps one group and breaks another is none.
"""

from __future__ import annotations

import json
import shlex
from collections import deque
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import Any

import msgspec

from selector.changes.case import Case, choice_of
from selector.changes.search import Kind, ways, within_reach
from selector.errors import AttnselError
from selector.fields import Vocabulary, one_line
from selector.models import override
from selector.serving.commands.command import Command, quoted
from selector.serving.commands.errors import CommandError
from selector.serving.layers.parts import DRAFTERS_OWN
from selector.serving.layers.refusal import Refusal, Stack
from selector.serving.preflight.judging import Judged, Judgement, Question, judge, starts
from selector.values import Phase

__all__ = ["Amendment", "Mended", "amend", "command_line", "mend"]

_MOST_CHANGES = 3
_MOST_TRIES = 23
_MOST_SIZES = 3
_HEADS = frozenset({"num_heads", "num_kv_heads", "gqa_group", "model_num_heads"})
_SWITCHES = {"dcp": "dcp_size", "pcp": "pcp_size"}
_FEATURES = frozenset({"kv_connector", "adaptive_verification", "non_causal", "batch_invariant"})
"""Settings that somebody wanted for another reason than attention: given up last."""

_PLAIN, _FORCED, _GIVEN_UP = 0, 1, 2


class Amendment(msgspec.Struct, frozen=True):
    """One change of a command.

    Attributes:
        flag: the spelling, or the variable.
        field: what it sets.
        before: its value now, as text; ``None`` when the command does not say it.
        after: the value to give it, as text; ``None`` when it is taken out.
    """

    flag: str
    field: str
    before: str | None
    after: str | None


class Mended(msgspec.Struct, frozen=True):
    """The changes, and the command with them made."""

    amendments: tuple[Amendment, ...]
    command: Command


class _Option(msgspec.Struct, frozen=True):
    """Fields of the command to set, a key to take out, and how unwelcome that is."""

    values: tuple[tuple[str, Any], ...] = ()
    cost: int = _PLAIN
    key: str = ""


# -- changing one field --------------------------------------------------------------------------


def amend(command: Command, field: str, value: Any) -> tuple[Command, Amendment]:
    """The command with one field set, read again; a variable is set to 0 to undo it.

    Raises:
        CommandError: nothing sets the field so.
    """
    before = command.setting(field)
    variables, after = dict(command.variables), _text(value)
    if before is not None and before.origin.startswith("variable "):
        name = before.origin.removeprefix("variable ")
        old, variables[name] = f"{name}={variables.get(name, '')}", "0"
        head = [w.replace(old, f"{name}=0") for w in command.argv[: command.start]]
        words, flag, after = [*head, *command.argv[command.start :]], name, "0"
    else:
        words, flag = command.with_setting(field, value), ""
    again = command.again(words, variables)
    now = again.setting(field)
    if not flag:
        held = now or before
        flag = one_line(held.origin) if held is not None else field
    told = None if before is None else _text(before.value)
    return again, Amendment(flag, field, told, after)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(dict(value)) if isinstance(value, Mapping) else one_line(value)


def command_line(command: Command) -> str:
    """The command as a line for a shell, with the variables that its words do not set."""
    head = command.argv[: command.start]
    own = [
        (name, value)
        for name, value in command.variables.items()
        if not any(word.endswith(f"{name}={value}") for word in head)
    ]
    if all(name.isidentifier() and name.isascii() for name, _ in own):
        said = [f"{name}={shlex.quote(value)}" for name, value in own]
    else:
        said = ["env", *(shlex.quote(f"{name}={value}") for name, value in own)]
    return " ".join([*said, quoted(command.argv)])


# -- the search ----------------------------------------------------------------------------------


def mend(command: Command, judgement: Judgement, asked: Question) -> Mended | None:
    """The fewest changes after which nothing refuses; ``None`` when none that is tried helps."""
    if not judgement.refusals:
        return None
    start = Mended((), command)
    refused: deque[tuple[int, Mended]] = deque([(0, start)])
    queue: list[tuple[int, int, int, Mended]] = []
    seen = {_key(command)}
    for _ in range(_MOST_TRIES):
        while refused and (not queue or queue[0][0] > len(refused[0][1].amendments)):
            cost, state = refused.popleft()  # more changes are worth a look only now
            known = judgement if state is start else judge(state.command, asked)
            for option in _options(state.command, known, asked):
                longer = _apply(state, option)
                if longer is None or _key(longer.command) in seen:
                    continue
                seen.add(_key(longer.command))
                order = len(longer.amendments), cost + option.cost, len(seen)
                heappush(queue, (*order, longer))
        if not queue:
            break
        count, cost, _, state = heappop(queue)
        if starts(state.command, asked):
            return state
        if count < _MOST_CHANGES:
            refused.append((cost, state))
    return None


def _key(command: Command) -> tuple[object, ...]:
    return command.argv, tuple(command.variables.items())


def _apply(state: Mended, option: _Option) -> Mended | None:
    command, done = state.command, list(state.amendments)
    try:
        if option.key:
            command = command.without_key(option.key)
            done.append(Amendment(option.key, "", "", None))
        for field, value in option.values:
            if any(one.field == field for one in done):
                return None
            command, amendment = amend(command, field, value)
            done.append(amendment)
    except (CommandError, KeyError, IndexError):
        return None
    return Mended(tuple(done), command)


def _options(command: Command, known: Judgement, asked: Question) -> Iterator[_Option]:
    """Yields what might mend the first refusal, the most welcome first."""
    first = known.refusals[0]
    if first.stage == "command":
        yield from _other_words(command, first)
    elif first.stage == "parallel sizes":
        yield from _sizes(command, first, asked)
    found = next((j for j in known.judged if _is_about(first, j)), None)
    for pin in found.part.pins if found is not None else ():
        if pin.backend == first.backend or first.stage != "constructor":
            yield _Option(((pin.field, None),))
    if found is None or found.truth is None or found.inquiry is None:
        return
    refused = [r for one in first.candidates for r in one.rejections]
    if found.part.stack == "drafter" and any(r.field == "kv_cache_dtype" for r in refused):
        yield _Option((("draft_kv_cache_dtype", "auto"),))  # its own again
    yield from _ways(found, asked)
    truth = found.truth
    phase = Phase.DECODE if Phase.DECODE in truth.needed else Phase.PREFILL
    backend = choice_of(truth, phase).backend
    if backend is not None and (first.stage != "mla prefill"):
        field = "draft_backend" if found.part.stack == "drafter" else "backend"
        yield _Option(((field, backend),), _FORCED)


def _is_about(refusal: Refusal, judged: Judged) -> bool:
    part = judged.part
    return (part.stack, part.group.name) == (refusal.stack, refusal.group)


def _other_words(command: Command, refusal: Refusal) -> Iterator[_Option]:
    """Yields a command without what the engine refuses: of two flags, either is kept."""
    for note in command.notes:
        if note.text == refusal.words and note.kind in ("dead", "unknown") and "." in note.flag:
            yield _Option(key=note.flag)
    for setting in command.settings:
        shown = one_line(setting.origin)
        if shown in refusal.words.split():
            yield _Option(((setting.field, setting.value),))
            yield _Option(((setting.field, None),), _FORCED)
    if command.setting("strict_variables") is not None:
        yield _Option((("strict_variables", None),))


def _sizes(command: Command, refusal: Refusal, asked: Question) -> Iterator[_Option]:
    """Yields the nearest tensor-parallel sizes that take no more GPUs.

    A drafter runs on all ranks of its target or on one.
    """
    drafter, own = refusal.stack == "drafter", command.setting("draft_tp_size")
    if drafter and (own is not None or asked.draft is not None):
        yield from (_Option((("draft_tp_size", size),)) for size in (None, 1))
        return
    setting = command.setting("tp_size")
    now = setting.value if setting is not None and isinstance(setting.value, int) else 1
    count = 0
    for size in range(min(max(now - 1, 1), 256), 0, -1):
        if count == _MOST_SIZES:
            break
        try:
            override(asked.model, {"tp_size": size})
        except AttnselError:
            continue
        count += 1
        yield _Option((("tp_size", size),))
    for name in ("dcp_size", "pcp_size"):
        if command.setting(name) is not None:
            yield _Option(((name, None),), _FORCED)


def _ways(found: Judged, asked: Question) -> Iterator[_Option]:
    """Yields the settings that give some backend the layers, nearest first."""
    inquiry, truth, part = found.inquiry, found.truth, found.part
    if inquiry is None or truth is None:
        return
    case = Case(inquiry, truth, part.model, part.group, True, part.shard)
    near = within_reach(case, asked.engine.truth)
    words = asked.engine.truth.manifest.vocabulary
    for way in ways(near, asked.engine.truth):
        changes = way.prospect.changes
        if not changes or any(change.kind is not Kind.SETTING for change in changes):
            continue
        before, after = inquiry.layer.fields, way.inquiry.layer.fields
        made = {n: v for n, v in after.items() if before.get(n) != v and n not in _HEADS}
        yield _option(made, part.stack)
        if len(changes) == 1 and changes[0].field in made:
            for text in changes[0].others:
                yield from _other(words, changes[0].field, text, part.stack)


def _other(words: Vocabulary, field: str, text: str, stack: Stack) -> Iterator[_Option]:
    """Yields a value that would do as well; a set of values is none."""
    try:
        yield _option({field: words.fields[field].read(text)}, stack)
    except AttnselError:
        return


def _option(made: dict[str, Any], stack: Stack) -> _Option:
    values: list[tuple[str, Any]] = []
    for name, value in made.items():
        field = DRAFTERS_OWN.get(name, name) if stack == "drafter" else name
        if name in _SWITCHES and _SWITCHES[name] in made:
            continue
        gone = value in ("unset", "absent") or (name in _FEATURES and value is False)
        values.append((field, None if gone else value))
    given_up = any(name in _FEATURES for name in made)
    return _Option(tuple(values), _GIVEN_UP if given_up else _PLAIN)
