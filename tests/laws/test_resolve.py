"""The resolver, against a re-statement of its rules and against its own answers to more questions.

Two laws carry the rest. *First match*: when everything is known, the answer is what a few dozen
lines of plain Python over the YAML give. *Unknown is sound*: what is certain while something is
unknown stays so whatever it turns out to be.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from selector import Device, Facts, Layer, Outcome, Phase, Policy, Request
from selector.binding import Bound, Selector
from selector.domains import Domain
from selector.errors import ContradictionError
from selector.loading import loads
from selector.manifest import Manifest
from selector.values import Choice, Resolution, Verdict

Tree = dict[str, Any]

# -- manifests -----------------------------------------------------------------------------------

VALUES: dict[str, tuple[Any, ...]] = {
    "capability": ("8.0", "9.0", "12.0"),
    "mla": (False, True),
    "sparse": (False, True),
    "head_size": (64, 96, 128, 256),
    "dtype": ("float16", "bfloat16"),
    "kv_cache_dtype": ("auto", "fp8", "fp8_e4m3"),
    "block_size": (16, 48, 64, "unset"),
    "attn_type": ("decoder", "encoder"),
    "sink": (False, True),
    "sliding_window": ("unset", 128, 4096),
    "dense_prefill": (False, True),
    "index_topk": ("absent", 64, 2048),
    "tp_size": (1, 8),
    "dcp_size": (1, 2),
    "num_heads": (16, 64, "unset"),
    "mode": ("a_", "b_", "unset"),
    "probe": (False, True),
}
"""What a field can be here. The first of each makes a plain layer."""

LENGTHS = ((1, 1), (1, 64), (2, 2), (8, 8), (64, 64), (64, 128), (128, 128), (129, 200))
LENGTHS += ((700, 2049),)
VERSIONS = (None, "1.0", "1.5", "2.0")
DERIVED: dict[str, tuple[Any, ...]] = {"grade": (1, 2, 3), "kind": ("x_", "y_")}
FOLLOWS = {"dcp": (False, True)}
REQUEST = {
    "query_len": (1, 2, 8, 64, 128),
    "seq_len": (1, 64, 128, 2048),
    "has_context": (False, True),
    "num_prefills": (1, 2),
    "mask_words": (4096, 65536),
}
MEASURE = {"kind": "mask_words", "small_tile": 128, "large_tile": 256, "word_align": 4}
NUMBERS = {
    "head_size",
    "block_size",
    "sliding_window",
    "index_topk",
    "tp_size",
    "dcp_size",
    "num_heads",
    "grade",
    "query_len",
    "seq_len",
    "num_prefills",
    "mask_words",
}
SYMBOLS = {"block_size": ["unset"], "sliding_window": ["unset"], "num_heads": ["unset"]}
SYMBOLS |= {"index_topk": ["absent"], "mode": ["unset"]}
CAPABILITIES = ("8.0", "9.0", "12.0", "9.x", "12.x", ">=9.0", "<9.0", "<12.0", "8.0..9.0")
LAYER_FIELDS = tuple(f for f in VALUES if f != "probe")
CORE = ("capability", "head_size", "dtype", "kv_cache_dtype", "block_size", "attn_type")


ALL: dict[str, tuple[Any, ...]] = {**VALUES, **DERIVED, **FOLLOWS, **REQUEST}
BOUND = (*VALUES, *DERIVED, *FOLLOWS)
"""Fields that are fixed with the layer."""
ANY_TIME = (*BOUND, *REQUEST)
OMITTED = ("head_size", "dtype", "kv_cache_dtype", "attn_type", "dense_prefill", "index_topk")
OMITTED += ("num_heads", "mode", "probe", "lib", "query_len", "seq_len")
"""What is unknown when nobody says it; other fields then have a default."""


class Choices:
    """Choices made by bytes: cheap to draw, and shrunk towards the first of everything."""

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)

    def number(self, limit: int) -> int:
        return next(self._data, 0) % limit

    def one(self, options: Sequence[Any]) -> Any:
        return options[self.number(len(options))]

    def chance(self, of: int) -> bool:
        """One time in ``of``."""
        return self.number(of) == of - 1

    def some(self, options: Sequence[Any], least: int, most: int) -> list[Any]:
        left, found = list(options), []
        for _ in range(min(least + self.number(most - least + 1), len(left))):
            found.append(left.pop(self.number(len(left))))
        return found

    def order(self, options: Sequence[Any]) -> list[Any]:
        return self.some(options, len(options), len(options))


def predicate(pick: Choices, name: str, bounds: bool = True) -> Any:
    form = pick.number(6)
    if form == 0:
        return one_form(pick, name, bounds)
    if form == 1:
        return "any"
    return [one_form(pick, name, bounds) for _ in range(pick.one((2, 1, 3, 0)))]


def one_form(pick: Choices, name: str, bounds: bool) -> Any:
    if name == "capability":
        return pick.one(CAPABILITIES)
    if name in NUMBERS and pick.chance(2):
        return numbers(pick, name, bounds)
    return pick.one(ALL[name])


def numbers(pick: Choices, name: str, bounds: bool) -> Tree:
    low, high = sorted(pick.one([v for v in ALL[name] if type(v) is int]) for _ in range(2))
    form: Tree = {}
    if pick.chance(2):
        form["min"] = low
    if pick.chance(2):
        form["max"] = high
    if pick.chance(3):
        form["multiple_of"] = pick.one((8, 32, 1))
        if Domain.between(form.get("min", 1), form.get("max"), form["multiple_of"]).is_empty():
            del form["multiple_of"]  # the loader refuses ranges without a number
    if bounds and name != "index_topk" and pick.chance(4):
        form[pick.one(("max", "min"))] = {"field": pick.one(("index_topk", "tp_size", "grade"))}
    if not form or pick.chance(2):
        form["or"] = pick.some(SYMBOLS.get(name, ()), 0, 1)
    return form


def condition(
    pick: Choices, fields: Sequence[str], least: int = 0, most: int = 2, bounds: bool = True
) -> Tree:
    return {f: predicate(pick, f, bounds) for f in pick.some(fields, least, most)}


def accepted(pick: Choices, name: str) -> Any:
    if not pick.chance(3):
        return predicate(pick, name)
    fields = [f for f in BOUND if f != name]
    cases = [
        {"when": condition(pick, fields, 1), "allow": predicate(pick, name)}
        for _ in range(pick.number(3))
    ]
    return {"cases": [*cases, {"allow": predicate(pick, name)}]}


def first_match(pick: Choices, fields: Sequence[str], key: str, results: Sequence[Any]) -> Any:
    rules = [
        {"when": condition(pick, fields, 1), key: pick.one(results)} for _ in range(pick.number(3))
    ]
    return [*rules, {key: pick.one(results)}]


def derivation(pick: Choices, name: str, fields: Sequence[str], bounds: bool) -> Tree:
    *others, last = pick.order(DERIVED[name])
    rules = [{"when": condition(pick, fields, 1, 2, bounds), "value": v} for v in others]
    return {"first_match": [*rules, {"value": last}]}


def constraint(pick: Choices) -> Tree:
    rule: Tree = {"when": condition(pick, BOUND, 1), "code": "COMBINATION", "reason": "They clash."}
    if not pick.chance(4):
        rule["require"] = condition(pick, BOUND)
        if pick.chance(3):
            rule["require"]["any_of"] = [condition(pick, BOUND, 1) for _ in range(pick.one((2, 1)))]
    return rule


def an_entry(pick: Choices, name: str, kind: tuple[bool, bool]) -> Tree:
    mla, sparse = (usual is not pick.chance(12) for usual in kind)
    accepts: Tree = {"platform": ["cuda"], **dict.fromkeys(CORE, "any")}
    accepts |= {"sink": "any", "sliding_window": "any", "dcp": "any"}
    for field in pick.some((*CORE, *BOUND[8:]), 0, 2):
        accepts[field] = accepted(pick, field)
    if pick.chance(6):
        accepts.pop(pick.one(("sink", "sliding_window", "dcp")))
    entry: Tree = {"name": name, "source": "here", "mla": mla, "sparse": sparse, "accepts": accepts}
    if sparse:
        accepts["capability"] = pick.some(("8.0", "9.x", "12.0", "9.0", "12.x"), 2, 5)
        pinned = any(c.startswith("12") for c in accepts["capability"])
        entry["dense_prefill"] = not pinned and not pick.chance(3)
        if not entry["dense_prefill"]:
            entry["rationale"] = "It is not there."
    served = pick.one((("prefill", "decode"),) * 6 + (("prefill",), ("decode",)))
    entry["phases"] = {phase: a_phase(pick) for phase in served}
    if pick.chance(5):
        entry["constraints"] = [constraint(pick) for _ in range(pick.one((1, 2)))]
    if pick.chance(3):
        kinds = (*VALUES["kv_cache_dtype"], "same")
        fields = [f for f in BOUND if f not in DERIVED]
        entry["coerce"] = {"kv_cache_dtype": first_match(pick, fields, "value", kinds)}
    if pick.chance(6):
        entry["requires"] = {"lib": pick.one((">=1.2", "<2", "==1.5"))}
    if pick.chance(6):
        entry.setdefault("requires", {})["probe"] = True
    if not pick.chance(6):
        entry["kv_layout"] = pick.some(("NHD", "HND"), 1, 2)
    if "decode" in served:
        thresholds = (1, 2, 8, 64)
        cases = {"cases": first_match(pick, BOUND, "value", thresholds)}
        entry["decode_threshold"] = cases if pick.chance(3) else pick.one(thresholds)
        entry["uniform_decodes"] = pick.chance(2)
    if "prefill" in served:
        entry["prefill_paths"] = paths(pick, sparse)
    return entry


def a_phase(pick: Choices) -> Tree:
    if pick.chance(12):
        return {"disabled": True, "rationale": "It is broken."}
    phase: Tree = {}
    if pick.chance(6):
        field = pick.one(CORE[1:])
        phase["accepts"] = {field: accepted(pick, field)}
    if pick.chance(6):
        phase["constraints"] = [constraint(pick)]
    return phase


def paths(pick: Choices, sparse: bool) -> list[Tree]:
    names = ("dense_mha", "masked_mha", "sparse_mqa") if sparse else ("mha", "mqa")
    found = []
    for _ in range(pick.number(4)):
        rule: Tree = {"path": pick.one(names), "reason": "So it is."}
        rule["when"] = condition(pick, ANY_TIME)
        rule["scope"] = pick.one(("request", "batch"))
        if not rule["when"] or pick.chance(3):
            table = [{"max": 64, "min": pick.one((0, 2, 64))}]
            if pick.chance(2):
                table.append({"max": 2048, "min": pick.one((0, 64, 128))})
            over, least = pick.order(("seq_len", "query_len"))
            rule["steps"] = {"over": over, "least": least, "table": table}
        found.append(rule)
    return [*found, {"path": names[-1], "reason": "Nothing else.", "scope": "request"}]


def a_priority(pick: Choices, backends: list[Tree]) -> Tree:
    names = [entry["name"] for entry in backends]
    listed: Tree = {"when": condition(pick, ANY_TIME, 1), "reason": "Drawn."}
    listed["order"] = pick.some(names, 0, 3)
    for phase in ("prefill", "decode"):
        serving = [entry["name"] for entry in backends if phase in entry["phases"]]
        if pick.chance(4):
            listed[phase] = pick.some(serving, 0, 3)
    return listed


def a_manifest(pick: Choices) -> Tree:
    tree: Tree = {"attnsel": 1, "name": "drawn", "version": "1", "fields": FIELDS, "facts": FACTS}
    tree["measures"] = {"mask_words": MEASURE}
    tree["derive"] = {  # the second is stated first: order is the reader's business
        "kind": derivation(pick, "kind", (*VALUES, "grade"), True),
        "grade": derivation(pick, "grade", (*VALUES, *FOLLOWS), False),
    }
    names = NAMED[: pick.one((2, 3, 3, 1))]
    kind = (pick.chance(3), pick.chance(2))
    backends = tree["backends"] = [an_entry(pick, name, kind) for name in names]
    tree["priorities"] = [a_priority(pick, backends) for _ in range(pick.number(3))]
    tree["priorities"].append({"order": pick.order(names), "reason": "The rest."})
    if pick.chance(2):
        same = pick.some(("kv_layout", "kv_cache_dtype", "backend"), 1, 2)
        when = condition(pick, BOUND, 0, 1)
        tree["joint"] = [{"when": when, "same": same, "reason": "One cache."}]
    if pick.chance(6):
        denial = {"backend": pick.one(names), "when": condition(pick, ANY_TIME)}
        tree["deny"] = [{**denial, "reason": "Not here."}]
    if pick.chance(8):
        rule = {"when": condition(pick, BOUND, 1), "require": condition(pick, BOUND, 1)}
        tree["space"] = [{**rule, "reason": "There is no such layer."}]
    return tree


NAMED = ("one", "two", "three")
FACTS = {
    "lib": {"type": "version", "description": "A library."},
    "probe": {"type": "boolean", "description": "A switch."},
}
FIELDS = {
    "mode": {
        "type": "name",
        "role": "context",
        "values": ["a_", "b_"],
        "symbols": ["unset"],
        "description": "A switch of the engine.",
    }
}

# -- questions -----------------------------------------------------------------------------------

Fields = dict[str, Any]
"""Field → value, for every field of ``VALUES``."""

NO_POLICY = Policy()


@dataclass(frozen=True)
class Asked:
    """A question with everything known."""

    fields: Fields
    version: str | None
    query_len: int
    seq_len: int
    speculative_tokens: int = 0
    policy: Policy = NO_POLICY


def a_question(pick: Choices, tree: Tree) -> Asked:
    backends = tree["backends"]
    names = [entry["name"] for entry in backends]
    fields = {name: pick.one((*values, values[0])) for name, values in VALUES.items()}
    if not pick.chance(8):
        entry = pick.one(backends)
        fields |= {"mla": entry["mla"], "sparse": entry["sparse"]}
    policy = NO_POLICY
    if pick.chance(8):
        deny = dict.fromkeys(pick.some(names, 0, 1), "Not today.")
        policy = Policy(deny, *(pick.one((None, *names)) for _ in range(3)))
    lengths = pick.one(LENGTHS)
    return Asked(fields, pick.one(("1.5", *VERSIONS)), *lengths, pick.one((0, 0, 3)), policy)


def a_doubt(pick: Choices) -> tuple[frozenset[str], Fields]:
    """Fields left out, and fields of which only some possible values are known."""
    unknown = pick.some(OMITTED, 0, 3)
    names = [f for f in LAYER_FIELDS if f != "capability" and f not in unknown]
    some = pick.some(names, 0 if unknown else 1, 2)
    return frozenset(unknown), {f: pick.some(VALUES[f], 2, 3) for f in some}


@dataclass(frozen=True)
class Case:
    """A manifest, a question to it, and what of that question may be unknown."""

    tree: Tree
    asked: Asked
    unknown: frozenset[str]
    sets: Fields
    batch: list[tuple[int, int]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pick = Choices(draw(st.binary(min_size=600, max_size=600)))
    tree = a_manifest(pick)
    asked = a_question(pick, tree)
    return Case(
        tree, asked, *a_doubt(pick), [pick.one(LENGTHS) for _ in range(pick.one((2, 3, 4, 1)))]
    )


def bind(
    manifest: Manifest,
    asked: Asked,
    unknown: frozenset[str] = frozenset(),
    sets: Fields | None = None,
) -> Bound:
    """The question bound, without what is unknown; ``sets`` holds possible values instead."""
    read = dict(
        Layer.read(
            {f: asked.fields[f] for f in LAYER_FIELDS if f != "capability" and f not in unknown},
            manifest.vocabulary,
        ).fields
    )
    for field, possible in (sets or {}).items():
        read[field] = Domain.of(*possible)
    facts: dict[str, Any] = {"probe": asked.fields["probe"], "lib": asked.version}
    known = Facts({f: v for f, v in facts.items() if f not in unknown})
    device = Device("cuda", asked.fields["capability"])
    return Selector(manifest).bind(device, Layer(MappingProxyType(read)), known, asked.policy)


def ask(bound: Bound, asked: Asked, unknown: frozenset[str] = frozenset()) -> Resolution:
    return bound.resolve(
        None if "query_len" in unknown else asked.query_len,
        None if "seq_len" in unknown else asked.seq_len,
        speculative_tokens=asked.speculative_tokens,
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
    known = {
        **fields,
        "dcp": fields["dcp_size"] > 1,
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


def bound_or_assume(manifest: Manifest, asked: Asked, *more: Any) -> Bound:
    try:
        return bind(manifest, asked, *more)
    except ContradictionError:
        assume(False)  # a space rule says that there is no such layer
        raise


hard = settings(
    max_examples=3 * settings().max_examples,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)


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
    """In a batch, only what reads the batch changes: the phase and the path of a prefill."""
    tree, asked, more = case.tree, case.asked, case.batch
    bound = bound_or_assume(loads(json.dumps(tree)), asked)
    requests = [Request(q, s, asked.speculative_tokens) for q, s in more]
    alone = [bound.resolve(q, s, speculative_tokens=asked.speculative_tokens) for q, s in more]
    together = bound.resolve_batch(requests)
    assert bound.resolve_batch(requests[:1]) == (alone[0],)
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
    asked, unknown, sets = case.asked, case.unknown - {"query_len", "seq_len"}, case.sets
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
