"""Manifests so small that every question can be asked of the definition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from math import prod
from random import Random
from typing import Any

from selector import Selector
from selector.analysis.space import Space
from selector.analysis.witness import witness_of
from selector.asking import with_request
from selector.errors import ContradictionError
from selector.fields import BUILTIN, REQUEST_FIELDS
from selector.rules import Question
from selector.values import Request, Resolution

Tree = dict[str, Any]

SETS = {
    "head_size": ([64], [64, 128], {"max": 100}, {"multiple_of": 3}, "any"),
    "dtype": (["float16"], ["float16", "bfloat16"], "any"),
    "sink": (True, [True, False], False),
    "grade": (["x_"], "any"),
    "num_reqs": ({"max": 31}, {"min": 32}, [1]),
}
CAPABILITIES = (["9.0"], ["8.0", "9.0"], ["9.0", "12.0"], ["12.x"])
LENGTHS = ((1, 1), (5, 5), (65, 65), (65, 101), (65, 200), (300, 400))


def condition(random: Random, most: int = 2, least: int = 1) -> Tree:
    names = random.sample(sorted(SETS), random.randint(least, most))
    return {name: random.choice(SETS[name]) for name in names}


def entry(random: Random, name: str) -> Tree:
    sparse = random.random() < 0.5
    accepts: Tree = {"platform": ["cuda"], "capability": random.choice(CAPABILITIES)}
    core = ("dtype", "kv_cache_dtype", "head_size", "block_size", "attn_type")
    features = [f.name for f in BUILTIN if f.role == "feature" and f.name not in ("mla", "sparse")]
    accepts |= {**dict.fromkeys((*core, *features), "any"), **condition(random, 3)}
    if random.random() < 0.3:
        case = {"when": condition(random), "allow": random.choice(SETS["head_size"])}
        accepts["head_size"] = {"cases": [case, {"allow": random.choice(SETS["head_size"])}]}
    made: Tree = {"name": name, "source": "here", "mla": False, "sparse": sparse}
    made |= {"accepts": accepts, "kv_layout": random.sample(["NHD", "HND"], random.randint(1, 2))}
    served = random.choice((("prefill", "decode"),) * 3 + (("prefill",), ("decode",)))
    made["phases"] = {phase: {} for phase in served}
    if random.random() < 0.4:
        made["constraints"] = [{"when": condition(random), "code": "NO", "reason": "No."}]
    if random.random() < 0.3:
        made["requires"] = {"probe": True}
    if sparse:
        dense = accepts["capability"] in (["9.0"], ["8.0", "9.0"]) and random.random() < 0.8
        made |= {"dense_prefill": dense} if dense else {"dense_prefill": False, "rationale": "No."}
    if "decode" in served:
        made["decode_threshold"] = random.choice((1, 4, 64))
    if "prefill" in served:
        made["prefill_paths"] = list(paths(random, sparse))
    return made


def paths(random: Random, sparse: bool) -> Iterator[Tree]:
    first, last = ("dense_mha", "sparse_mqa") if sparse else ("mqa", "mha")
    if random.random() < 0.7:
        when = condition(random, least=0)
        when |= random.choice(({}, {"has_context": False}, {"seq_len": {"max": 100}}))
        rule: Tree = {"path": first, "when": when, "reason": "So it is."}
        if not when or random.random() < 0.3:
            table = [{"max": 80, "min": 60}, {"max": 250, "min": 65}]
            rule["steps"] = {"over": "seq_len", "least": "query_len", "table": table}
        yield rule
    yield {"path": last, "reason": "The rest."}


def invariant(random: Random, number: int, names: list[str]) -> Tree:
    when = condition(random, least=0)
    if random.random() < 0.5:
        when["capability"] = random.choice(CAPABILITIES)
    never: Tree = {"backend": random.choice((random.sample(names, 1), "any"))}
    if number % 2:
        never = {"path": random.sample(["dense_mha", "mqa", "mha", "sparse_mqa"], 1)}
    return {"name": f"promise {number}", "when": when, "never": never, "reason": "Drawn."}


def reduced(seed: int) -> Selector:
    """A manifest drawn with a seed: three entries, two lists, and six promises."""
    return Selector.loads(json.dumps(tree(seed)), "reduced.yaml")


def tree(seed: int) -> Tree:
    """The same before it is read."""
    random = Random(seed)
    names = ["one", "two", "three"]
    made: Tree = {"attnsel": 1, "name": "reduced", "version": "1"}
    made["facts"] = {"probe": {"type": "boolean", "description": "A switch."}}
    rules = [{"when": {"dtype": ["float16"], "head_size": {"max": 100}}, "value": "x_"}]
    made["derive"] = {"grade": {"first_match": [*rules, {"value": "y_"}]}}
    made["backends"] = [entry(random, name) for name in names]
    lists = [{"when": condition(random, 1), "order": random.sample(names, random.randint(1, 3))}]
    lists += [{"order": random.sample(names, random.randint(2, 3))}]
    made["priorities"] = [{**one, "reason": "Drawn."} for one in lists]
    if random.random() < 0.6:
        same = random.choice((["backend"], ["kv_layout"]))
        made["joint"] = [{"when": condition(random, 1), "same": same, "reason": "One cache."}]
    if random.random() < 0.5:
        rule = {"when": {"dtype": ["bfloat16"]}, "require": {"sink": False}}
        made["space"] = [{**rule, "reason": "There is none."}]
    made["invariants"] = [invariant(random, number, names) for number in range(6)]
    return made


def every_question(
    selector: Selector, space: Space, lengths: tuple[tuple[int, int], ...] = LENGTHS[:1]
) -> Iterator[tuple[int, Question, list[Resolution]]]:
    """Yields what can be asked, each as often as it counts, and the answers for some lengths."""
    names = [n for n in space.classes if n not in ("platform", "capability", *REQUEST_FIELDS)]
    times = prod(len(c) for name, c in space.classes.items() if name in REQUEST_FIELDS)
    for device in space.devices:
        for chosen in product(*(space.classes[name] for name in names)):
            classes = dict(zip(("platform", "capability", *names), (*device, *chosen), strict=True))
            witness = witness_of(space, classes)
            assert witness is not None
            try:
                bound = selector.bind(witness.device, witness.layer, witness.facts)
            except ContradictionError:
                continue
            answers = [bound.resolve_one(Request(*one)) for one in lengths]
            asked = with_request(selector.manifest, bound.question, Request(*lengths[0]))
            yield times, asked, answers
