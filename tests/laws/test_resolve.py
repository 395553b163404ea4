"""The resolver, against a re-statement of its rules and against its own answers to more questions.

Two laws carry the rest. *First match*: when everything is known, the answer is what a few dozen
lines of plain Python over the YAML give. *Unknown is sound*: what is certain while something is
unknown stays so whatever it turns out to be.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings

from selector import Outcome, Phase, Policy, Request
from selector.errors import ContradictionError
from selector.fields import BATCH_FIELDS
from selector.loading import loads
from selector.values import Choice, Resolution, Verdict

from .drawing import (
    LENGTHS,
    VALUES,
    VERSIONS,
    Asked,
    Case,
    Fields,
    Tree,
    ask,
    bind,
    bound_or_assume,
    cases,
    hard,
)

# -- the rules, stated again ---------------------------------------------------------------------


def lies_in(name: str, value: Any, predicate: Any, known: Fields) -> bool:
    if predicate == "any":
        return True
    if isinstance(predicate, list):
        return any(lies_in(name, value, p, known) for p in predicate)
    if isinstance(predicate, dict):
        if value in [s for s in predicate.get("or", []) if type(s) is type(value)]:
            return True
        if type(value) is not int or set(predicate) <= {"or"}:
            return False
        for key in ("min", "max"):
            end = predicate.get(key, value)
            end = known[end["field"]] if isinstance(end, dict) else end
            if type(end) is not int or (value < end if key == "min" else value > end):
                return False
        return value % predicate.get("multiple_of", 1) == 0
    if name == "capability":
        return has_capability(value, predicate)
    return type(value) is type(predicate) and bool(value == predicate)


def has_capability(value: str, text: str) -> bool:
    def number(version: str) -> tuple[int, ...]:
        return tuple(int(part) for part in version.split("."))

    if text.endswith(".x"):
        return value.split(".")[0] == text.split(".")[0]
    if text.startswith(">="):
        return number(value) >= number(text[2:])
    if text.startswith("<"):
        return number(value) < number(text[1:])
    if ".." in text:
        low, high = text.split("..")
        return number(low) <= number(value) <= number(high)
    return value == text


def holds(when: Tree, known: Fields) -> bool:
    return all(lies_in(f, known[f], p, known) for f, p in when.items() if f != "any_of") and (
        "any_of" not in when or any(holds(w, known) for w in when["any_of"])
    )


def first(rules: list[Tree], known: Fields) -> Tree:
    return next(r for r in rules if holds(r.get("when", {}), known))


def known_of(tree: Tree, fields: Fields, lengths: list[tuple[int, int]]) -> Fields:
    """Every field: those of the layer, of these requests together, and what is derived."""
    query, seq = max(q for q, _ in lengths), max(s for _, s in lengths)
    context = max(s - q for q, s in lengths)
    tile = 128 if query <= 128 else 256
    words = ceil(ceil(max(query, context) / 32) / 4) * 4
    heads = fields["num_heads"]
    known = {
        **fields,
        "dcp": fields["dcp_size"] > 1,
        "batch_num_heads": heads if heads == "unset" else heads * fields["num_reqs"],
        "query_len": query,
        "seq_len": seq,
        "has_context": context > 0,
        "num_prefills": len(lengths),
        "mask_words": len(lengths) * ceil(query / tile) * tile * words,
    }
    for name in ("grade", "kind"):
        known[name] = first(tree["derive"][name]["first_match"], known)["value"]
    return known


def coerced(entry: Tree, known: Fields) -> Fields:
    changed = dict(known)
    for name, rules in entry.get("coerce", {}).items():
        value = first(rules, known)["value"]
        changed[name] = known[name] if value == "same" else value
    return changed


def refused_fields(entry: Tree, phase: str, known: Fields) -> set[str]:
    accepts = {"sink": False, "sliding_window": "unset", "dcp": False}  # unstated: they are off
    accepts |= {**entry["accepts"], **entry["phases"][phase].get("accepts", {})}
    accepts |= {"mla": entry["mla"], "sparse": entry["sparse"], "platform": "any"}
    refused = set()
    for name, stated in accepts.items():
        if isinstance(stated, dict) and "cases" in stated:
            stated = first(stated["cases"], known)["allow"]
        if not lies_in(name, known.get(name), stated, known):
            refused.add(name)
    return refused


def broken_fields(constraint: Tree, known: Fields) -> set[str]:
    """The fields that break a constraint; of one that forbids altogether, all it is about."""
    required = dict(constraint.get("require") or {})
    ways = required.pop("any_of", [])
    failing = {f for f, stated in required.items() if not holds({f: stated}, known)}
    failing |= {f for w in ways if not failing for f in w if not holds({f: w[f]}, known)}
    return failing or {*constraint["when"]}


def is_broken(constraint: Tree, known: Fields) -> bool:
    required = constraint.get("require") or None
    return holds(constraint["when"], known) and (required is None or not holds(required, known))


def has_version(wanted: str, seen: str | None) -> bool:
    table = {">=1.2": ("1.5", "2.0"), "<2": ("1.0", "1.5"), "==1.5": ("1.5",)}
    return seen in table[wanted]


def outcome(tree: Tree, entry: Tree, phase: str, known: Fields, asked: Asked) -> str:
    if entry["name"] in asked.policy.deny:
        return "denied"
    for denial in tree.get("deny", ()):
        if denial["backend"] == entry["name"] and holds(denial["when"], known):
            return "denied"
    if phase not in entry["phases"]:
        return "unsupported"
    spec = entry["phases"][phase]
    refused = refused_fields(entry, phase, known)
    for rule in [*entry.get("constraints", ()), *spec.get("constraints", ())]:
        if is_broken(rule, known):
            refused |= broken_fields(rule, known)
    if refused - {"probe"}:
        return "unsupported"
    if spec.get("disabled"):
        return "pinned"
    if refused:
        return "unavailable"
    requires = entry.get("requires", {})
    if "probe" in requires and not known["probe"]:
        return "unavailable"
    if "lib" in requires and not has_version(requires["lib"], asked.version):
        return "unavailable"
    return "eligible"


def agree(tree: Tree, prefill: Tree, decode: Tree, known: Fields) -> bool:
    return differ_in(tree, prefill, decode, known) is None


def differ_in(tree: Tree, prefill: Tree, decode: Tree, known: Fields) -> str | None:
    """What two backends must share and do not, if anything."""
    for joint in tree.get("joint", ()):
        if not holds(joint["when"], known):
            continue
        for what in joint["same"]:
            if what == "backend" and prefill["name"] != decode["name"]:
                return "backend"
            if what == "kv_cache_dtype":
                kinds = {coerced(e, known)["kv_cache_dtype"] for e in (prefill, decode)}
                if len(kinds) > 1:
                    return "kv_cache_dtype"
            if what == "kv_layout":
                layouts = [e.get("kv_layout") for e in (prefill, decode)]
                if None not in layouts and not set(layouts[0]) & set(layouts[1]):
                    return "kv_layout"
    return None


def order_of(tree: Tree, phase: str, known: Fields, policy: Policy) -> list[str]:
    forced = policy.prefill_backend if phase == "prefill" else policy.decode_backend
    serves = {e["name"] for e in tree["backends"] if phase in e["phases"]}
    forced = forced or (policy.backend if policy.backend in serves else None)
    listed = first(tree["priorities"], known)
    return [forced] if forced else listed.get(phase, listed["order"])


@dataclass
class Expected:
    outcomes: dict[tuple[str, str], str]
    prefill: str | None
    decode: str | None
    phase: str | None
    threshold: int | None
    path: str | None


def expected(tree: Tree, asked: Asked) -> Expected:
    known = known_of(tree, asked.fields, [(asked.query_len, asked.seq_len)])
    by_name = {e["name"]: e for e in tree["backends"]}
    outcomes = {
        (name, phase): outcome(tree, entry, phase, known, asked)
        for name, entry in by_name.items()
        for phase in ("prefill", "decode")
    }
    usable = {
        phase: [
            name
            for name in order_of(tree, phase, known, asked.policy)
            if outcomes[name, phase] == "eligible"
        ]
        for phase in ("prefill", "decode")
    }
    pairs = [
        (p, d)
        for d in usable["decode"]
        for p in usable["prefill"]
        if agree(tree, by_name[p], by_name[d], known)
    ]
    prefill, decode = next(iter(usable["prefill"]), None), next(iter(usable["decode"]), None)
    if pairs:
        prefill, decode = pairs[0]
    elif decode:
        prefill = None
    for name, entry in by_name.items():
        both = {outcomes[name, phase] for phase in ("prefill", "decode")} == {"eligible"}
        on = differ_in(tree, entry, by_name[decode], known) if decode else None
        if on and outcomes[name, "prefill"] == "eligible" and not (on == "backend" and both):
            outcomes[name, "prefill"] = "clashes"
            both = False
        alone = not any(agree(tree, by_name[p], entry, known) for p in usable["prefill"])
        if pairs and alone and outcomes[name, "decode"] == "eligible":
            on = differ_in(tree, by_name[usable["prefill"][0]], entry, known)
            if not (on == "backend" and both):  # it would go with itself
                outcomes[name, "decode"] = "clashes"
    threshold = None
    phase = None
    if decode:
        threshold = threshold_of(by_name[decode], known, asked)
        phase = "decode" if asked.query_len <= threshold else "prefill"
    path = path_of(by_name, prefill, decode, phase, known, known)
    return Expected(outcomes, prefill, decode, phase, threshold, path)


def threshold_of(entry: Tree, known: Fields, asked: Asked) -> int:
    stated = entry["decode_threshold"]
    number = stated if isinstance(stated, int) else first(stated["cases"], known)["value"]
    return max(number, 1 + asked.speculative_tokens)


def path_of(
    by_name: dict[str, Tree],
    prefill: str | None,
    decode: str | None,
    phase: str | None,
    known: Fields,
    batch: Fields,
) -> str | None:
    if prefill is None:
        return None
    if phase == "decode":
        entry = by_name[str(decode)]
        return "sparse_mqa" if entry["sparse"] else "mqa" if entry["mla"] else "mha"
    entry = by_name[prefill]
    for rule in entry["prefill_paths"]:
        seen = coerced(entry, batch if rule["scope"] == "batch" else known)
        dense = rule["path"] in ("dense_mha", "masked_mha")
        if dense and not (entry.get("dense_prefill") and known["dense_prefill"]):
            continue
        if holds(rule.get("when", {}), seen) and is_above(rule.get("steps"), seen):
            return str(rule["path"])
    return None


def is_above(steps: Tree | None, known: Fields) -> bool:
    if steps is None:
        return True
    for row in steps["table"]:
        if known[steps["over"]] <= row["max"]:
            return bool(known[steps["least"]] >= row["min"])
    return False


@given(cases())
@hard
def test_when_all_is_known_the_first_match_decides(case: Case) -> None:
    tree, asked = case.tree, case.asked
    manifest = loads(json.dumps(tree))
    known = known_of(tree, asked.fields, [(asked.query_len, asked.seq_len)])
    if any(is_broken(rule, known) for rule in tree.get("space", ())):
        with pytest.raises(ContradictionError):
            bind(manifest, asked)
        return
    answer = ask(bind(manifest, asked), asked)
    wanted = expected(tree, asked)
    assert answer.prefill.backend == wanted.prefill
    assert answer.decode.backend == wanted.decode
    assert answer.phase == wanted.phase
    assert answer.decode.decode_threshold == wanted.threshold
    assert answer.prefill.path == wanted.path
    assert answer.prefill.paths == (() if wanted.path is None else (wanted.path,))
    for choice in (answer.prefill, answer.decode):
        assert choice.conditions == ()
        assert choice.possible == (() if choice.backend is None else (choice.backend,))
    for (name, phase), verdict in verdicts(answer).items():
        outcome = wanted.outcomes[name, phase]
        chosen = answer.prefill if phase is Phase.PREFILL else answer.decode
        assert verdict.conditions == ()
        assert bool(verdict.rejections) == (outcome != "eligible")
        if chosen.backend == name:
            assert (verdict.outcome, outcome) == ("selected", "eligible")
        elif outcome == "clashes":
            assert verdict.outcome == "unsupported"
            assert [r.code for r in verdict.rejections] == ["JOINT"]
        else:
            assert verdict.outcome == outcome


@given(cases())
@hard
def test_a_brief_answer_leaves_out_only_who_is_never_chosen(case: Case) -> None:
    asked = case.asked
    bound = bound_or_assume(loads(json.dumps(case.tree)), asked, case.unknown, case.sets)
    request = Request(
        None if "query_len" in case.unknown else asked.query_len,
        None if "seq_len" in case.unknown else asked.seq_len,
        asked.speculative_tokens,
    )
    whole, brief = bound.resolve_one(request), bound.resolve_one(request, brief=True)
    names = [candidate.backend for candidate in brief.candidates]
    kept = tuple(c for c in whole.candidates if c.backend in names)
    assert brief == msgspec.structs.replace(whole, candidates=kept)
    for phase, choice in ((Phase.PREFILL, whole.prefill), (Phase.DECODE, whole.decode)):
        alone = [bound.judge(name, request)[phase] for name in choice.possible]
        assert all(verdict.outcome in ("eligible", "conditional") for verdict in alone)


@given(cases())
@settings(hard, max_examples=hard.max_examples // 6)
def test_the_same_question_has_the_same_answer_in_any_thread(case: Case) -> None:
    tree, asked = case.tree, case.asked
    manifest = loads(json.dumps(tree))
    bound = bound_or_assume(manifest, asked)
    answer = ask(bound, asked)
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: ask(bound, asked) == answer, range(16))) == {True}
    assert ask(bind(loads(json.dumps(tree)), asked), asked) == answer


@given(cases())
@hard
def test_a_batch(case: Case) -> None:
    """In a batch, only what reads the batch changes: the phase and the path of a prefill.

    Where rules read how many requests run together, that is as if the layer had said it.
    """
    tree, asked, more = case.tree, case.asked, case.batch
    manifest = loads(json.dumps(tree))
    bound = bound_or_assume(manifest, asked)
    requests = [Request(q, s, asked.speculative_tokens) for q, s in more]
    assert bound.resolve_batch(requests[:1]) == (bound.resolve_one(requests[0]),)
    if asked.fields["num_reqs"] == 1 and any(f in json.dumps(tree) for f in BATCH_FIELDS):
        asked = replace(asked, fields={**asked.fields, "num_reqs": len(more)})
    try:
        counted = bind(manifest, asked)
    except ContradictionError:
        with pytest.raises(ContradictionError):
            bound.resolve_batch(requests)
        return
    alone = [counted.resolve_one(request) for request in requests]
    together = bound.resolve_batch(requests)
    assert together == counted.resolve_batch(requests)
    phases = split(tree, asked, more)
    for one, whole, phase, length in zip(alone, together, phases, more, strict=True):
        assert whole.phase == phase
        prefill = msgspec.structs.replace(
            whole.prefill,
            path=one.prefill.path,
            paths=one.prefill.paths,
            path_rules=one.prefill.path_rules,
        )
        assert msgspec.structs.replace(whole, phase=one.phase, prefill=prefill) == one
        same = [
            length_
            for length_, phase_ in zip(more, phases, strict=True)
            if phase_ != "decode" and chosen(tree, asked, length_).prefill == whole.prefill.backend
        ]
        known = known_of(tree, asked.fields, [length])
        batch = known if phase == "decode" else known_of(tree, asked.fields, same)
        by_name = {e["name"]: e for e in tree["backends"]}
        names = (whole.prefill.backend, whole.decode.backend)
        assert whole.prefill.path == path_of(by_name, *names, phase, known, batch)


def without_path(answer: Resolution) -> Resolution:
    prefill = msgspec.structs.replace(answer.prefill, path=None, paths=(), path_rules=())
    return msgspec.structs.replace(answer, phase=None, prefill=prefill)


def chosen(tree: Tree, asked: Asked, length: tuple[int, int]) -> Expected:
    return expected(tree, replace(asked, query_len=length[0], seq_len=length[1]))


def split(tree: Tree, asked: Asked, lengths: list[tuple[int, int]]) -> list[str | None]:
    """Decodes and prefills: of uniform decodes, only the leading ones of one length count."""
    by_name = {e["name"]: e for e in tree["backends"]}
    found = []
    leading = True
    for length in lengths:
        wanted = chosen(tree, asked, length)
        phase = wanted.phase
        if wanted.decode and by_name[wanted.decode]["uniform_decodes"]:
            leading = leading and phase == "decode" and length[0] == lengths[0][0]
            if phase == "decode" and not leading and wanted.threshold > 1:
                phase = "prefill"
        found.append(phase)
    return found


# -- unknown is sound ----------------------------------------------------------------------------


def completions(asked: Asked, unknown: frozenset[str], sets: Fields, most: int) -> list[Asked]:
    """Questions with everything known that this one can turn out to be."""
    fields = {**{f: VALUES[f] for f in unknown if f in VALUES}, **sets}
    lengths = [
        (q, s)
        for q, s in {*LENGTHS, (asked.query_len, asked.seq_len), (1, asked.seq_len)}
        if ("query_len" in unknown or q == asked.query_len)
        and ("seq_len" in unknown or s == asked.seq_len)
    ]
    versions = VERSIONS if "lib" in unknown else (asked.version,)
    whole = [
        replace(
            asked,
            fields={**asked.fields, **dict(zip(fields, values, strict=True))},
            version=version,
            query_len=length[0],
            seq_len=length[1],
        )
        for values in product(*fields.values())
        for version in versions
        for length in sorted(lengths)
    ]
    return whole[:: max(1, len(whole) // most)]


UNUSABLE = {Outcome.UNSUPPORTED, Outcome.UNAVAILABLE, Outcome.PINNED, Outcome.DENIED}


def verdicts(answer: Resolution) -> dict[tuple[str, Phase], Verdict]:
    found = {}
    for candidate in answer.candidates:
        found[candidate.backend, Phase.PREFILL] = candidate.prefill
        found[candidate.backend, Phase.DECODE] = candidate.decode
    return found


def is_usable(verdict: Verdict) -> bool:
    return verdict.outcome not in UNUSABLE


def check_verdict(before: Verdict, after: Verdict) -> None:
    codes = {r.code for r in after.rejections}
    if before.outcome is Outcome.CONDITIONAL:
        assert before.conditions
    elif is_usable(before) and not before.conditions:
        assert is_usable(after) or codes == {"JOINT"}
    elif not is_usable(before):
        assert not is_usable(after)
        stays = after.outcome in (before.outcome, Outcome.DENIED)
        refused_before = {r.code for r in before.rejections}
        if before.outcome is Outcome.UNSUPPORTED and "JOINT" not in refused_before:
            assert stays
        if after.outcome is Outcome.UNSUPPORTED is before.outcome and "JOINT" not in codes:
            assert refused_before - {"JOINT"} <= codes


def check_choice(before: Choice, after: Choice) -> None:
    if not before.conditions:
        assert after.backend == before.backend
    if after.backend is not None:
        assert after.backend in before.possible
    if before.backend is None and not before.conditions:
        assert not before.possible


@given(cases())
@hard
def test_what_is_certain_stays_whatever_the_unknown_turns_out_to_be(case: Case) -> None:
    asked, unknown, sets = case.asked, case.unknown, case.sets
    manifest = loads(json.dumps(case.tree))
    before = ask(bound_or_assume(manifest, asked, unknown, sets), asked, unknown)
    for whole in completions(asked, unknown, sets, 12):
        try:
            after = ask(bind(manifest, whole), whole)
        except ContradictionError:  # there is no such layer
            continue
        for key, verdict in verdicts(before).items():
            check_verdict(verdict, verdicts(after)[key])
        check_choice(before.prefill, after.prefill)
        check_choice(before.decode, after.decode)
        if before.decode.backend == after.decode.backend:
            if before.phase is not None:
                assert after.phase == before.phase
            if before.decode.decode_threshold is not None:
                assert after.decode.decode_threshold == before.decode.decode_threshold
        if backends(before) == backends(after):
            check_path(before, after)


@given(cases())
@hard
def test_what_is_certain_of_a_batch_stays_too(case: Case) -> None:
    asked, unknown = case.asked, case.unknown - {"query_len", "seq_len"}
    sets = {n: values for n, values in case.sets.items() if n != "num_reqs"}
    assume(unknown or sets)
    manifest = loads(json.dumps(case.tree))
    requests = [Request(q, s, asked.speculative_tokens) for q, s in case.batch]
    bound = bound_or_assume(manifest, asked, unknown, sets)
    query, seq = case.batch[0]
    alone = bound.resolve(query, seq, speculative_tokens=asked.speculative_tokens)
    assert bound.resolve_batch(requests[:1]) == (alone,)
    before = bound.resolve_batch(requests)
    for whole in completions(asked, unknown, sets, 8):
        try:
            after = bind(manifest, whole).resolve_batch(requests)
        except ContradictionError:
            continue
        if [backends(a) for a in before] != [backends(a) for a in after]:
            continue  # other prefills run together
        for one, other in zip(before, after, strict=True):
            check_path(one, other)


def backends(answer: Resolution) -> tuple[str | None, str | None]:
    return answer.prefill.backend, answer.decode.backend


def check_path(before: Resolution, after: Resolution) -> None:
    """The same backends take the path that was certain, in the phase that was."""
    if before.phase is not None:
        assert after.phase == before.phase
    if (before.phase or Phase.PREFILL) == (after.phase or Phase.PREFILL):
        assert after.prefill.path is None or after.prefill.path in before.prefill.paths
        if before.prefill.path is not None:
            assert after.prefill.path == before.prefill.path
