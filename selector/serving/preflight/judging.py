"""What is selected for each part of a command, and what then refuses to start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from selector.binding import Selector
from selector.changes.case import USABLE, Inquiry, candidate_of, choice_of, verdict_of
from selector.errors import AttnselError, UnknownBackendError, UnknownDeviceError
from selector.fields import one_line
from selector.serving.commands.command import Command
from selector.serving.commands.flags import table
from selector.serving.commands.values import Note
from selector.serving.layers.parts import Part, Trace, parts_of
from selector.serving.layers.pins import (
    PREFILL_SUFFIX,
    Pin,
    is_dense_mla,
    pin_for,
    policy_of,
    unknown_kinds,
)
from selector.serving.layers.refusal import Refusal, Refused, Stage
from selector.values import Code, Device, Facts, Layer, Model, Phase, Policy, Rejection, Resolution

__all__ = ["Engine", "Judged", "Judgement", "Question", "judge", "starts"]


class Engine(msgspec.Struct, frozen=True):
    """One version of an engine: what it believes, and what is true.

    Attributes:
        claims: selects as the engine does.
        truth: knows what the constructors take.
        facts: software that an ordinary installation has.
    """

    claims: Selector
    truth: Selector
    facts: Facts

    @classmethod
    def load(cls, manifest: str) -> Engine:
        """The engine of a manifest.

        Raises:
            ManifestError: the manifest has errors.
            OSError: it cannot be read.
        """
        truth = Selector.load(manifest)
        claims = Selector(truth.manifest.as_claimed())
        known = dict.fromkeys(sorted(truth.manifest.standard), True)
        return cls(claims, truth, Facts(MappingProxyType(known)))


class Question(msgspec.Struct, frozen=True):
    """What a preflight is asked, beside the command.

    Attributes:
        draft: the drafter's model, when it has one that could be read.
        no_draft: why it could not.
    """

    model: Model
    device: Device
    engine: Engine
    draft: Model | None = None
    no_draft: str = ""


class Judged(msgspec.Struct, frozen=True):
    """One part, and what becomes of it.

    Attributes:
        part: the layers.
        inquiry: what was asked for them.
        claimed: what the engine selects; ``None`` where that is not modelled, or cannot be asked.
        truth: what would really run.
    """

    part: Part
    inquiry: Inquiry | None = None
    claimed: Resolution | None = None
    truth: Resolution | None = None


class Judgement(msgspec.Struct, frozen=True):
    """All parts, what refuses, and what to know."""

    judged: tuple[Judged, ...]
    refusals: tuple[Refusal, ...]
    notes: tuple[Note, ...]


def judge(command: Command, asked: Question) -> Judgement:
    """Selects as the engine does, and asks what then refuses.

    Args:
        command: as read.
        asked: the model, the device and the engine.
    """
    words = asked.engine.truth.manifest.vocabulary
    parts = parts_of(command, asked.model, words, asked.device, asked.draft, asked.no_draft)
    refusals = [*_refused_words(command), *_refused_ranks(command), *parts.refusals]
    notes = [*command.notes, *parts.notes, *_kind_notes(command)]
    judged: list[Judged] = []
    for part in parts.parts:
        if part.unmodelled:
            judged.append(Judged(part))
            continue
        if part.stack == "drafter":
            part = _with_cache_of_target(command, part, judged)
        found, refused = _judge(part, asked)
        judged.append(found)
        refusals += refused
    notes += _drafter_notes(command, judged, asked.engine)
    answers = [one.claimed for one in judged if one.claimed is not None]
    notes += [Note("unmodelled", "device", text) for one in answers for text in one.notes]
    return Judgement(tuple(judged), tuple(refusals), tuple(notes))


def starts(command: Command, asked: Question) -> bool:
    """Whether nothing refuses; asks those only who can be chosen, and stops at the first no."""
    if any(_refused_words(command)) or any(_refused_ranks(command)):
        return False
    words = asked.engine.truth.manifest.vocabulary
    parts = parts_of(command, asked.model, words, asked.device, asked.draft, asked.no_draft)
    if parts.refusals:
        return False
    judged: list[Judged] = []
    for part in parts.parts:
        if part.unmodelled:
            continue
        if part.stack == "drafter":
            part = _with_cache_of_target(command, part, judged)
        found = _started(part, asked)
        if found is None:
            return False
        judged.append(found)
    return True


# -- the command itself --------------------------------------------------------------------------


def _refused_words(command: Command) -> Iterator[Refusal]:
    """Yields what the engine refuses while it reads the command."""
    strict = command.setting("strict_variables")
    for note in command.notes:
        refused = note.kind == "contradiction"
        row = table().keys.get(note.flag)
        if row is not None and row.status in ("dead", "absent"):
            refused = True
        elif note.kind == "unknown" and row is None and note.flag.startswith("--"):
            refused = note.flag.partition(".")[0] in table().structured
        elif strict is not None and strict.value is True and note.flag.startswith("VLLM_"):
            refused = note.kind in ("dead", "unknown")
        if refused:
            yield Refusal("command", words=note.text)


def _refused_ranks(command: Command) -> Iterator[Refusal]:
    """Yields why a drafter cannot have ranks of its own: it has all of its target's, or one."""
    own, target = command.setting("draft_tp_size"), command.setting("tp_size")
    said = command.speculative or {}
    has_layers = bool(said.get("model")) or "mtp" in str(said.get("method"))
    ranks = target.value if target is not None else 1
    if own is not None and has_layers and own.value not in (None, 1, ranks):
        words = f"{one_line(own.origin)} {own.value} is neither 1 nor tp_size {ranks}"
        yield Refusal("parallel sizes", "drafter", words=words)


def _kind_notes(command: Command) -> Iterator[Note]:
    for kind in unknown_kinds(command):
        text = f"backend_per_kind names {one_line(kind)}, which is never looked up"
        yield Note("unmodelled", "--attention-config.backend_per_kind", text)


def _drafter_notes(command: Command, judged: Sequence[Judged], engine: Engine) -> Iterator[Note]:
    """Yields that what is forced for the target is not for its drafter."""
    setting = command.setting("backend")
    drafters = [j.part for j in judged if j.part.stack == "drafter" and not j.part.pins]
    if setting is None or not drafters:
        return
    entry = engine.truth.manifest.entries.get(str(setting.value))
    mla = drafters[0].group.layer.get("mla") is True
    other = ""
    if entry is not None and entry.mla is not mla:
        kind = (
            "MLA only, and the drafter has none" if entry.mla else "no MLA, which the drafter has"
        )
        other = f" ({entry.name} serves {kind})"
    shown = one_line(setting.origin)
    text = f"{shown} does not reach the drafter{other}; --speculative-config.attention_backend does"
    yield Note("overridden", shown, text, setting.position)


def _with_cache_of_target(command: Command, part: Part, judged: Sequence[Judged]) -> Part:
    """A drafter without a cache type of its own has the one that the target's backend made.

    The engine writes it back into the run's config, which the drafter is built from later.
    """
    made = [
        (coercion.after, choice.backend or "")
        for one in judged
        if one.part.stack == "target" and one.claimed is not None
        for choice in (one.claimed.prefill, one.claimed.decode)
        for coercion in choice.coercions
        if coercion.field == "kv_cache_dtype"
    ]
    if not made or command.setting("draft_kv_cache_dtype") is not None:
        return part
    value, backend = made[-1]
    replaced = ("kv_cache_dtype", "config_kv_cache_dtype")
    kept = {n: v for n, v in part.group.layer.fields.items() if n not in replaced}
    layer = Layer(MappingProxyType({**kept, "kv_cache_dtype": value}))
    others = [trace for trace in part.traces if trace.field not in replaced]
    trace = Trace("kv_cache_dtype", value, "coercion", f"{backend} of the target")
    return msgspec.structs.replace(
        part,
        group=msgspec.structs.replace(part.group, layer=layer),
        traces=(trace, *others),
    )


# -- one part ------------------------------------------------------------------------------------


def _started(part: Part, asked: Question) -> Judged | None:
    """What runs a part; ``None`` when something refuses it."""
    pins, refusals = _pins(part, asked.engine)
    if refusals:
        return None
    inquiry = _inquiry(part, pins, asked)
    try:
        claimed = inquiry.resolve(asked.engine.claims, brief=True)
        truth = inquiry.resolve(asked.engine.truth, brief=True)
    except AttnselError:
        return None
    if claimed.missing or any(_constructors(part, claimed, truth)):
        return None
    return Judged(part, inquiry, claimed, truth)


def _answer(inquiry: Inquiry, selector: Selector) -> Resolution:
    """The answer, with all candidates when no list says who was tried for what is missing."""
    answer = inquiry.resolve(selector, brief=True)
    if all(choice_of(answer, phase).tried is not None for phase in answer.missing):
        return answer
    return inquiry.resolve(selector)


def _inquiry(part: Part, pins: Sequence[Pin], asked: Question) -> Inquiry:
    layer = part.group.layer
    return Inquiry(asked.device, layer, asked.engine.facts, policy_of(pins, layer), part.request)


def _judge(part: Part, asked: Question) -> tuple[Judged, list[Refusal]]:
    pins, refusals = _pins(part, asked.engine)
    inquiry = _inquiry(part, pins, asked)
    try:
        claimed = _answer(inquiry, asked.engine.claims)
        truth = inquiry.resolve(asked.engine.truth, brief=True)
    except AttnselError as error:
        stage: Stage = "parallel sizes" if _is_parallel(str(error)) else "command"
        refusals.append(Refusal(stage, part.stack, part.group.name, words=str(error)))
        return Judged(part, inquiry), refusals
    refusals += _selection(part, pins, claimed, asked.engine)
    refusals += _constructors(part, claimed, truth)
    return Judged(part, inquiry, claimed, truth), refusals


def _pins(part: Part, engine: Engine) -> tuple[list[Pin], list[Refusal]]:
    """The backends that are forced and known, and that the engine refuses the others."""
    refusals: list[Refusal] = []
    return [pin for pin in part.pins if _is_known(pin, engine, part, refusals)], refusals


def _is_known(pin: Pin, engine: Engine, part: Part, refusals: list[Refusal]) -> bool:
    """Whether the engine has a backend of that name; if not, it refuses the command."""
    try:
        entry = engine.truth.manifest.entry(pin.backend)
    except UnknownBackendError as error:
        text = str(error).replace(PREFILL_SUFFIX, "")
    else:
        if pin.mla_prefill or not entry.name.endswith(PREFILL_SUFFIX):
            return True
        text = f'"{pin.backend}" is no attention backend'
    refusals.append(
        Refusal(
            "command",
            part.stack,
            part.group.name,
            backend=pin.backend,
            pin=pin.origin,
            words=f"{one_line(pin.origin)}: {text}",
        )
    )
    return False


def _is_parallel(words: str) -> bool:
    return any(name in words for name in ("tp_size", "dcp", "pcp"))


def _selection(
    part: Part, pins: Sequence[Pin], claimed: Resolution, engine: Engine
) -> Iterator[Refusal]:
    """Yields the phases for which nothing is selected, or for which the forced one is refused."""
    missing = claimed.missing
    apart = is_dense_mla(claimed.layer)
    goals = [(phase,) for phase in missing] if apart else [missing] if missing else []
    for phases in goals:
        pin = pin_for(pins, phases[0], claimed.layer)
        stage: Stage = "mla prefill" if apart and phases[0] is Phase.PREFILL else "selection"
        names = [pin.backend] if pin is not None else _tried(claimed, phases[-1], engine)
        yield Refusal(
            stage,
            part.stack,
            part.group.name,
            phases,
            pin.backend if pin is not None else None,
            one_line(pin.origin) if pin is not None else "",
            tuple(Refused(name, _why(claimed, name, phases)) for name in names),
        )


def _tried(claimed: Resolution, phase: Phase, engine: Engine) -> Sequence[str]:
    """The backends in the list that decides; else those of the layers' kind."""
    tried = choice_of(claimed, phase).tried
    if tried is not None:
        return tried
    entries = engine.claims.manifest.entries.values()
    kind = claimed.layer.get("mla") is True, claimed.layer.get("sparse") is True
    return [e.name for e in entries if (e.mla, e.sparse) == kind and phase in e.phases]


def _why(claimed: Resolution, backend: str, phases: Sequence[Phase]) -> tuple[Rejection, ...]:
    """Why a backend is refused: in the first phase that it serves at all."""
    candidate = candidate_of(claimed, backend)
    said = [verdict_of(candidate, phase).rejections for phase in phases]
    serving = [one for one in said if one and all(r.code != Code.PHASE for r in one)]
    return (serving or said)[0]


def _constructors(part: Part, claimed: Resolution, truth: Resolution) -> Iterator[Refusal]:
    """Yields the backends that are selected and then refuse."""
    found: dict[str, list[Phase]] = {}
    for phase in claimed.needed:
        name = choice_of(claimed, phase).backend
        if name is None:
            continue
        if verdict_of(candidate_of(truth, name), phase).outcome not in USABLE:
            found.setdefault(name, []).append(phase)
    for name, phases in found.items():
        why = verdict_of(candidate_of(truth, name), phases[0]).rejections
        yield Refusal(
            "constructor",
            part.stack,
            part.group.name,
            tuple(phases),
            name,
            candidates=(Refused(name, why),),
        )


def check_platform(judged: Sequence[Judged], engine: Engine) -> None:
    """Refuses a device of which the manifest says nothing: no answer is better than a wrong one.

    Raises:
        UnknownDeviceError: no backend of the manifest serves its platform.
    """
    for one in judged:
        if one.claimed is None or one.inquiry is None or not _is_foreign(one.claimed):
            continue
        everyone = one.inquiry.resolve(engine.claims)
        if everyone.candidates and _is_foreign(everyone):
            ref, device = engine.truth.manifest.ref, one.claimed.device
            raise UnknownDeviceError(
                f"{device}: the manifest of {ref.name} {ref.version} says nothing of "
                f"{device.platform}; give a CUDA GPU, or --manifest of one that does"
            )


def _is_foreign(answer: Resolution) -> bool:
    """Whether all candidates there are, if any, are refused for the platform."""
    return all(
        any(r.field == "platform" for v in (c.prefill, c.decode) for r in v.rejections)
        for c in answer.candidates
    )


def conditions_of(judged: Sequence[Judged], engine: Engine) -> Mapping[str, None]:
    """The standard facts on which what is selected depends."""
    needed: dict[str, None] = {}
    for one in judged:
        if one.inquiry is None or one.claimed is None:
            continue
        open_ = msgspec.structs.replace(one.inquiry, facts=Facts(), policy=Policy())
        bound = open_.bind(engine.claims)
        for phase in one.claimed.needed:
            name = choice_of(one.claimed, phase).backend
            if name is not None:
                verdict = bound.judge(name, open_.request)[phase]
                names = (c.field for c in verdict.conditions)
                needed |= dict.fromkeys(n for n in names if n in engine.facts.values)
    return needed
