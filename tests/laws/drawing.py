"""Manifests that use the whole language, and questions to them, drawn from bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st

from selector import Device, Facts, Layer, Policy, Request
from selector.binding import Bound, Selector
from selector.domains import Domain
from selector.errors import ContradictionError
from selector.manifest import Manifest
from selector.values import Resolution

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
    "num_reqs": (1, 2, 3),
    "num_heads": (16, 64, "unset"),
    "mode": ("a_", "b_", "unset"),
    "probe": (False, True),
}
"""What a field can be here. The first of each makes a plain layer."""

LENGTHS = ((1, 1), (1, 64), (2, 2), (8, 8), (64, 64), (64, 128), (128, 128), (129, 200))
LENGTHS += ((700, 2049),)
VERSIONS = (None, "1.0", "1.5", "2.0")
DERIVED: dict[str, tuple[Any, ...]] = {"grade": (1, 2, 3), "kind": ("x_", "y_")}
FOLLOWS: dict[str, tuple[Any, ...]] = {"dcp": (False, True), "batch_num_heads": (16, 48, 128)}
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
    "num_reqs",
    "num_heads",
    "batch_num_heads",
    "grade",
    "query_len",
    "seq_len",
    "num_prefills",
    "mask_words",
}
SYMBOLS = {"block_size": ["unset"], "sliding_window": ["unset"], "num_heads": ["unset"]}
SYMBOLS |= {"index_topk": ["absent"], "mode": ["unset"], "batch_num_heads": ["unset"]}
CAPABILITIES = ("8.0", "9.0", "12.0", "9.x", "12.x", ">=9.0", "<9.0", "<12.0", "8.0..9.0")
BOUNDS = ("index_topk", "tp_size", "grade", "num_reqs")
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
        form[pick.one(("max", "min"))] = {"field": pick.one(BOUNDS)}
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
    for what in pick.some((*CORE, *BOUND[8:]), 0, 2):
        accepts[what] = accepted(pick, what)
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


def widened(pick: Choices, tree: Tree) -> Tree:
    """The same manifest with rules that the reference evaluator of these tests does not know."""
    for number, entry in enumerate(tree["backends"]):
        if number and entry["sparse"] and pick.chance(2):
            entry["sparse"] = False
            for key in ("dense_prefill", "rationale"):
                entry.pop(key, None)
            if "prefill_paths" in entry:
                entry["prefill_paths"] = paths(pick, sparse=False)
        if entry["sparse"] and entry["dense_prefill"]:
            for rule in entry.get("prefill_paths", [])[:-1]:
                if rule["path"] != "sparse_mqa" and pick.chance(2):
                    rule["by"] = "dense_backend"
            if pick.chance(3):
                when = condition(pick, ANY_TIME, 1)
                entry["dense_prefill_except"] = [{"when": when, "reason": "Not then."}]
        if pick.chance(2):
            rule = {"when": computed(pick), "code": "SIZES", "reason": "They do not fit."}
            if pick.chance(2):
                rule["require"] = computed(pick)
            entry.setdefault("constraints", []).append(rule)
    if pick.chance(2):
        first = tree["priorities"][0]
        tree["priorities"].insert(0, {**first, "when": computed(pick)})
    if pick.chance(3):
        default = {"value": pick.one((64, 2048, "absent")), "source": "here"}
        tree["defaults"] = {"index_topk": default}
        if pick.chance(2):
            tree["defaults"]["num_heads"] = {"field": "total_num_heads", "source": "here"}
    return tree


def computed(pick: Choices) -> Tree:
    """A condition on what is computed from a layer's sizes."""
    found: Tree = {}
    for name in pick.some(COMPUTED, 1, 2):
        if name == "heads_divide":
            found[name] = pick.one((True, False))
        else:
            found[name] = {pick.one(("min", "max")): pick.one((2, 8, 16, 64))}
    return found


COMPUTED = ("gqa_group", "heads_divide", "model_num_heads", "total_num_heads", "head_size")
MORE: dict[str, tuple[Any, ...]] = {
    "num_kv_heads": (8, 1, 3),
    "total_num_kv_heads": (8, 16),
    "total_num_heads": (64, 128, 24),
    "kv_lora_rank": (512, 64),
    "qk_rope_head_dim": (64, 32),
    "gqa_group": (8, 2),
}
"""Sizes of a layer that others are computed from."""

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
    more: Fields = field(default_factory=dict)


def with_sizes(pick: Choices, asked: Asked) -> Asked:
    """The same question of a layer that also says some of its sizes."""
    return replace(asked, more={name: pick.one(MORE[name]) for name in pick.some([*MORE], 0, 3)})


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
def wide_cases(draw: st.DrawFn) -> Case:
    """The same with everything that the language knows."""
    pick = Choices(draw(st.binary(min_size=700, max_size=700)))
    tree = widened(pick, a_manifest(pick))
    asked = with_sizes(pick, a_question(pick, tree))
    unknown, sets = a_doubt(pick)
    said = frozenset(name for name in ("mla", "sparse") if pick.chance(4))
    return Case(tree, asked, unknown | said, sets, [pick.one(LENGTHS)])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pick = Choices(draw(st.binary(min_size=600, max_size=600)))
    tree = a_manifest(pick)
    asked = a_question(pick, tree)
    return Case(
        tree, asked, *a_doubt(pick), [pick.one(LENGTHS) for _ in range(pick.one((2, 3, 4, 1)))]
    )


def question(
    manifest: Manifest,
    asked: Asked,
    unknown: frozenset[str] = frozenset(),
    sets: Fields | None = None,
) -> tuple[Device, Layer, Facts]:
    """The question without what is unknown; ``sets`` holds possible values instead.

    One request is what nobody says.
    """
    said = {f: asked.fields[f] for f in LAYER_FIELDS if f != "capability" and f not in unknown}
    if said["num_reqs"] == 1:
        del said["num_reqs"]
    read = dict(Layer.read(said | asked.more, manifest.vocabulary).fields)
    for name, possible in (sets or {}).items():
        read[name] = Domain.of(*possible)
    facts: dict[str, Any] = {"probe": asked.fields["probe"], "lib": asked.version}
    known = Facts({f: v for f, v in facts.items() if f not in unknown})
    return Device("cuda", asked.fields["capability"]), Layer(MappingProxyType(read)), known


def bind(
    manifest: Manifest,
    asked: Asked,
    unknown: frozenset[str] = frozenset(),
    sets: Fields | None = None,
) -> Bound:
    """The same bound, with its policy."""
    return Selector(manifest).bind(*question(manifest, asked, unknown, sets), asked.policy)


def request(asked: Asked, unknown: frozenset[str] = frozenset()) -> Request:
    """The lengths of a question, without what is unknown."""
    return Request(
        None if "query_len" in unknown else asked.query_len,
        None if "seq_len" in unknown else asked.seq_len,
        asked.speculative_tokens,
    )


def ask(bound: Bound, asked: Asked, unknown: frozenset[str] = frozenset()) -> Resolution:
    """The answer to a question that is bound."""
    return bound.resolve_one(request(asked, unknown))


hard = settings(
    max_examples=3 * settings().max_examples,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)


def bound_or_assume(manifest: Manifest, asked: Asked, *more: Any) -> Bound:
    """The question bound; a drawing is dropped when there is no such layer."""
    try:
        return bind(manifest, asked, *more)
    except ContradictionError:
        assume(False)  # a space rule says that there is no such layer
        raise
