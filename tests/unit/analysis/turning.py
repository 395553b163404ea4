"""Pairs of small manifests whose entries run what they are given in other ways."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

from selector import Selector
from selector.fields import BUILTIN
from selector.manifest import Manifest

from .reduced import condition, tree

Tree = dict[str, Any]

LONGEST = 75
"""Tokens: lengths beyond are like some up to here."""

_TOPK = {"max": {"field": "index_topk"}}
_SEQ = ({"max": 9}, {"min": 6, "max": 12}, _TOPK, {"min": {"field": "index_topk"}}, {"max": 9})
_OTHERS: tuple[Tree, ...] = (
    {"has_context": False},
    {"has_context": True},
    {"context_len": {"min": 3}},
    {"num_prefills": [1]},
    {"num_prefills": [2]},
    {"mask_words": {"max": 5}},
    {"query_len": {"min": 3}},
    {"query_len": {"max": {"field": "index_topk"}}},
    {},
    {},
)
_MEASURE = {"kind": "mask_words", "small_tile": 2, "large_tile": 4, "word_align": 1}


def pair(seed: int) -> tuple[Manifest, Manifest]:
    """Two manifests that choose alike, mostly, and differ in what they say of paths."""
    random = Random(seed)
    old = tree(seed)
    del old["invariants"]
    old["measures"] = {"mask_words": _MEASURE}
    if random.random() < 0.5:
        rule = {"when": {"query_len": {"max": 5}, "sink": [True]}, "value": "u_"}
        old["derive"]["size"] = {"first_match": [rule, {"value": "v_"}]}
    if random.random() < 0.15:
        old["priorities"][0]["when"] = {"seq_len": {"max": 9}}
    for entry in old["backends"]:
        _turn(random, entry, old["derive"])
    new = copy.deepcopy(old)
    for entry in new["backends"]:
        if random.random() < 0.6:
            _turn(random, entry, new["derive"])
        elif random.random() < 0.4:
            entry["accepts"] |= condition(random, 1)
    texts = (json.dumps(one) for one in (old, new))
    first, second = (Selector.loads(text, "turned.yaml").manifest for text in texts)
    return first, second


def plain_entry(name: str, phase: str) -> Tree:
    """An entry that accepts every layer on 9.0, in one phase."""
    core = ("dtype", "kv_cache_dtype", "head_size", "block_size", "attn_type")
    features = [f.name for f in BUILTIN if f.role == "feature" and f.name not in ("mla", "sparse")]
    accepts: Tree = {"platform": ["cuda"], "capability": ["9.0"]}
    accepts |= dict.fromkeys((*core, *features), "any")
    made: Tree = {"name": name, "source": "here", "mla": False, "sparse": False}
    return {**made, "accepts": accepts, "phases": {phase: {}}}


def _turn(random: Random, entry: Tree, derive: Tree) -> None:
    """Draws anew what an entry says of what it runs."""
    if "decode_threshold" in entry:
        cases = [{"when": condition(random, 1), "value": random.choice((2, 5))}, {"value": 1}]
        entry["decode_threshold"] = random.choice((1, 3, 8, {"cases": cases}))
    if "prefill_paths" in entry:
        entry["prefill_paths"] = _paths(random, entry["sparse"], derive)
    entry.pop("coerce", None)
    if random.random() < 0.4:
        when = {"dtype": ["float16"]}
        rules = [{"when": when, "value": "bfloat16"}, {"value": "same"}]
        entry["coerce"] = {"dtype": rules}
    if entry["sparse"] and entry["accepts"]["capability"] in (["9.0"], ["8.0", "9.0"]):
        for name in ("rationale", "dense_prefill_except"):
            entry.pop(name, None)
        entry["dense_prefill"] = random.random() < 0.8
        if not entry["dense_prefill"]:
            entry["rationale"] = "No."
        elif random.random() < 0.3:
            entry["dense_prefill_except"] = [{"when": condition(random, 2), "reason": "Not then."}]


def _paths(random: Random, sparse: bool, derive: Tree) -> list[Tree]:
    names = ("dense_mha", "masked_mha") if sparse else ("mqa", "mha")
    found = []
    for _ in range(random.randint(0, 3)):
        when: Tree = {} if random.random() < 0.5 else condition(random, 1)
        when |= random.choice(_OTHERS)
        if random.random() < 0.6:
            when["seq_len"] = random.choice(_SEQ)
        if "size" in derive and random.random() < 0.3:
            when["size"] = ["u_"]
        rule: Tree = {"path": random.choice(names), "when": when, "reason": "So it is."}
        if not when or random.random() < 0.3:
            table = [{"max": 8, "min": random.choice((2, 6))}, {"max": 16, "min": 7}]
            rule["steps"] = {"over": "seq_len", "least": "query_len", "table": table}
        if sparse and random.random() < 0.6:
            rule["by"] = "dense_backend"
        found.append(rule)
    return [*found, {"path": "sparse_mqa" if sparse else names[-1], "reason": "The rest."}]
