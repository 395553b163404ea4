"""The questions that one phase of an entry can be asked: an ordinary one, and steps from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from backends.batches import make_batch
from backends.contract import Batch
from backends.edges import LADDER, edges, member_near
from selector.asking import ask, check_space, with_request
from selector.domains import Domain, Value
from selector.errors import AttnselError, ContradictionError
from selector.fields import UNSET, Field
from selector.judge import judge_all
from selector.manifest import Entry, Manifest
from selector.paths import decode_path, prefill_path
from selector.rules import Answer, FirstMatch, Question, Test, When
from selector.values import Device, Facts, Layer, Phase, Policy, Request, Verdict

__all__ = ["LENGTHS", "Questions", "Values", "lengths_of"]

Values = dict[str, Value]

LENGTHS = ("query_len", "seq_len")

BASE: Mapping[str, Value] = MappingProxyType(
    {
        "head_size": 64,
        "v_head_size": UNSET,  # as head_size
        "dtype": "bfloat16",
        "kv_cache_dtype": "auto",
        "block_size": 16,
        "attn_type": "decoder",
        "num_heads": 8,
        "num_kv_heads": 2,
        "query_len": 33,
        "seq_len": 70,
    }
)

MLA_BASE: Mapping[str, Value] = MappingProxyType(
    {
        **BASE,
        "mla": True,
        "head_size": 576,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "num_heads": 16,
        "num_kv_heads": 1,
    }
)

SPARSE_BASE: Mapping[str, Value] = MappingProxyType(
    {
        **MLA_BASE,
        "sparse": True,
        "index_topk": 64,
        "dense_prefill": False,  # the layer's word; true is another case
        "seq_len": 300,
    }
)

_LATENT = ("kv_lora_rank", "qk_rope_head_dim")

_FULL_CONTEXT = ("encoder", "encoder_only")
"""Attention types without a cache: all tokens are queries."""


class Questions:
    """What one phase of an entry can be asked, and what it says.

    A question is a mapping from fields to values; what follows from a value changes with it.
    """

    def __init__(
        self, manifest: Manifest, entry: Entry, device: Device, facts: Facts, phase: Phase
    ) -> None:
        alone = MappingProxyType({entry.name: entry})
        self.manifest = msgspec.structs.replace(manifest, entries=alone, deny=())
        self.entry, self.device, self.facts, self.phase = entry, device, facts, phase
        self.spec = entry.phases[phase]
        self.words = manifest.vocabulary

    def base(self) -> Values:
        """An ordinary question that the entry accepts, as far as one field at a time can tell."""
        values = dict(BASE)
        if self.entry.mla:
            values = dict(SPARSE_BASE if self.entry.sparse else MLA_BASE)
        if self.phase is Phase.DECODE:
            values["query_len"] = 1
        for name, accepted in self.spec.accepts.items():
            field = self.words.fields[name]
            if name in ("platform", "capability"):
                continue
            wanted = values.get(name, _nothing_asked(field))
            allowed = self.allowed(values, accepted)
            if allowed is None or (wanted is not None and allowed.admits(wanted)):
                continue
            found = member_near(allowed & field.universe(), wanted)
            if found is not None:
                values = self.change(values, name, found) or values
        return values

    def ask(self, values: Values) -> Question | None:
        """The question these values make, or ``None`` when no such thing can exist."""
        try:
            layer = Layer.read({k: v for k, v in values.items() if k not in LENGTHS}, self.words)
            question = ask(self.manifest, self.device, layer, self.facts)
            check_space(self.manifest, question)
            request = Request(int(values["query_len"]), int(values["seq_len"]))
        except AttnselError:
            return None
        return with_request(self.manifest, question, request)

    def judge(self, asked: Question) -> Verdict:
        """What the entry says to a question."""
        judged = judge_all(self.manifest, asked, self.facts, Policy())
        return judged[self.entry.name][self.phase]

    def allowed(self, values: Values, accepted: FirstMatch[Test]) -> Domain | None:
        """The set that an accepted set comes to for this question."""
        question = self.ask(values)
        if question is None:
            return None
        matches = accepted.matches(question)
        return matches[0].rule.result.allowed.within(question)[1] if matches else Domain()

    def steer(self, values: Values, when: When) -> Values | None:
        """The values nearest to these for which a condition holds."""
        for test in when.tests:
            question = self.ask(values)
            if question is None:
                return None
            if test.answer(question) is Answer.YES:
                continue
            target = self._member(test, question)
            changed = None if target is None else self.change(values, test.field, target)
            if changed is None:
                return None
            values = changed
        question = self.ask(values)
        return values if question and when.answer(question) is Answer.YES else None

    def steer_clear(self, values: Values, whens: tuple[When, ...]) -> Values | None:
        """Values one field away, at most, for which none of some conditions holds."""
        question = self.ask(values)
        if question is None:
            return None
        holding = [w for w in whens if w.answer(question) is not Answer.NO]
        if not holding:
            return values
        for test in holding[0].tests:
            outside = self.words.fields[test.field].universe() - test.allowed.within(question)[1]
            accepted = self.spec.accepts.get(test.field)
            allowed = None if accepted is None else self.allowed(values, accepted)
            members = outside if allowed is None else outside & allowed
            for target in edges(members, Domain(), LADDER)[0]:
                changed = self.change(values, test.field, target)
                asked = changed and self.ask(changed)
                if changed and asked and all(w.answer(asked) is Answer.NO for w in whens):
                    return changed
        return None

    def _member(self, test: Test, question: Question) -> Value | None:
        field = self.words.fields[test.field]
        allowed = test.allowed.within(question)[0] & field.universe()
        return member_near(allowed, question.known(test.field))

    def change(self, values: Values, name: str, value: Value) -> Values | None:
        """The values with one field changed, and what must follow it; ``None``: impossible."""
        if name in ("platform", "capability", *self.manifest.facts, *self.manifest.derive):
            return None
        changed = {**values, name: value}
        query_len, seq_len = int(values["query_len"]), int(values["seq_len"])
        heads, kv_heads = int(values["num_heads"]), int(values["num_kv_heads"])
        if name == "query_len" and isinstance(value, int):
            changed["seq_len"] = max(seq_len, value)
        elif name == "seq_len" and isinstance(value, int):
            changed["query_len"] = min(query_len, value)
        elif name == "has_context":
            changed.pop(name)
            changed["seq_len"] = max(seq_len, query_len + 1) if value else query_len
        elif name == "context_len" and isinstance(value, int):
            changed.pop(name)
            changed["seq_len"] = query_len + value
        elif name == "head_size" and self.entry.mla and isinstance(value, int):
            changed["kv_lora_rank"], changed["qk_rope_head_dim"] = _latent(value)
        elif name in _LATENT and isinstance(value, int):
            changed["head_size"] = sum(int(changed[part]) for part in _LATENT)
        elif name in ("gqa_group", "num_heads", "num_kv_heads") and not isinstance(value, int):
            return None  # a kernel always has a number of heads
        elif name == "gqa_group":
            changed.pop(name)
            changed["num_heads"] = int(value) * kv_heads
        elif name == "num_heads" and int(value) % kv_heads:
            changed["num_kv_heads"] = 1
        elif name == "num_kv_heads":
            changed["num_heads"] = heads // kv_heads * int(value)
        elif name == "attn_type" and value in _FULL_CONTEXT:
            changed["query_len"] = changed["seq_len"] = query_len
            return None if self.phase is Phase.DECODE else changed
        return changed

    def threshold(self, values: Values) -> int:
        """The longest query that counts as a decode."""
        question = self.ask(values)
        rules = self.entry.decode_threshold
        matches = rules.matches(question) if rules and question else ()
        return min((m.rule.result for m in matches), default=1)

    def batch(self, asked: Question, lengths: Sequence[tuple[int, int]]) -> Batch | None:
        """The question for a kernel; ``None`` when its sizes contradict each other."""
        path = decode_path(self.entry)
        if self.phase is Phase.PREFILL:
            found = prefill_path(self.manifest, self.entry, asked, asked, self.facts, Policy())
            path = next(iter(found.paths), "")
        try:
            return make_batch(self.entry.coerced(asked), lengths, path)
        except ContradictionError:
            return None


def _nothing_asked(field: Field) -> Value | None:
    """The value that asks for nothing, for features and for sizes that can be unset or absent."""
    if field.role == "feature":
        return field.off
    return field.symbols[0] if field.symbols else None


def lengths_of(values: Values) -> tuple[int, int]:
    """The query's and the sequence's, in tokens."""
    return int(values["query_len"]), int(values["seq_len"])


def _latent(head_size: int) -> tuple[int, int]:
    """The rank of the latent and its rotary elements: 512 + 64, 256 + 64, 512 + 0."""
    rope = 64 if head_size > 64 and head_size != 512 else 0
    return head_size - rope, rope
