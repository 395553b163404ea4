"""Manifests drawn with a seed: few fields, but with lists, constraints, cases and bounds."""

from __future__ import annotations

from random import Random
from typing import Any

import yaml

SETS = {
    "head_size": [[64], [64, 128], [64, 128, 256], {"max": 256}, {"multiple_of": 16}, "any"],
    "dtype": [["float16"], ["bfloat16"], ["float16", "bfloat16"], "any"],
    "kv_cache_dtype": [["auto"], ["auto", "fp8"], ["auto", "fp8", "fp8_e5m2"], "any"],
    "block_size": [["unset", 16], [16, 32, 64], {"multiple_of": 16}, "any"],
    "capability": [["9.0"], ["10.x"], [">=8.0"], ["8.0..9.0"], ["12.0", "12.1"], "any"],
}
CONDITIONS = {
    "head_size": [[64], {"min": 129}, {"multiple_of": 32}],
    "dtype": [["float16"], ["bfloat16"], ["float32"]],
    "kv_cache_dtype": [["fp8"], ["auto"], ["fp8_e5m2", "fp8"]],
    "block_size": [["unset"], {"min": 33}],
    "capability": [["9.x"], ["<8.0"], [">=10.0"]],
    "sink": [True, False],
    "sliding_window": [["unset"], {"min": 1}],
    "num_heads": [{"max": 16}, {"min": 64}],
}


def drawn(seed: int, entries: int, constraints: int, changes: int = 0) -> str:
    """A manifest's text: entries with so many constraints between them, and several lists.

    With ``changes``, so many statements of entries are drawn anew.
    """
    random = Random(seed)
    names = [f"b{i}" for i in range(entries)]
    owners = [random.choice(names) for _ in range(constraints)]
    backends = [_entry(random, one, owners.count(one)) for one in names]
    again = Random(f"{seed} changed")
    for _ in range(changes):
        field = again.choice(sorted(SETS))
        again.choice(backends)["accepts"][field] = again.choice(SETS[field])
    lists = []
    for place in range(3):
        order = random.sample(names, len(names))
        when = {} if place == 2 else {"when": _when(random, 1)}
        lists.append({**when, "order": order, "reason": "Its order."})
    tree = {
        "attnsel": 1,
        "name": "drawn",
        "version": "1",
        "space": [
            {
                "when": {"dtype": ["float32"]},
                "require": {"kv_cache_dtype": ["auto"]},
                "reason": "No other cache for it.",
            }
        ],
        "backends": backends,
        "priorities": lists,
    }
    return yaml.safe_dump(tree, sort_keys=False)


def _when(random: Random, most: int) -> dict[str, object]:
    fields = random.sample(sorted(CONDITIONS), random.randint(1, min(most, len(CONDITIONS))))
    return {field: random.choice(CONDITIONS[field]) for field in fields}


def _entry(random: Random, name: str, constraints: int) -> dict[str, Any]:
    accepts: dict[str, object] = {"platform": ["cuda"], "attn_type": ["decoder"]}
    accepts |= {field: random.choice(sets) for field, sets in SETS.items()}
    if random.random() < 0.5:
        accepts["sink"] = "any"
    if random.random() < 0.5:
        accepts["sliding_window"] = "any"
    if random.random() < 0.3:
        accepts["head_size"] = {
            "cases": [
                {"when": _when(random, 1), "allow": random.choice(SETS["head_size"])},
                {"allow": random.choice(SETS["head_size"])},
            ]
        }
    entry: dict[str, Any] = {
        "name": name,
        "source": "https://example.org",
        "mla": False,
        "sparse": False,
        "accepts": accepts,
        "phases": {"prefill": {}, "decode": {}},
        "decode_threshold": 1,
        "prefill_paths": [{"path": "mha", "reason": "The only way."}],
    }
    if constraints:
        entry["constraints"] = [
            {"when": _when(random, 3), "code": f"NEVER_{i}", "reason": "Drawn."}
            for i in range(constraints)
        ]
    return entry


def tangled(entries: int, derived: int) -> str:
    """A manifest's text whose entries look at values that are derived from one another."""
    random = Random(5)
    tree = yaml.safe_load(drawn(5, entries, 0))
    names: list[str] = []
    tree["derive"] = {}
    for number in range(derived):
        when: dict[str, object] = {"head_size": {"min": random.randrange(32, 256, 8)}}
        when["num_heads"] = {"min": random.choice([1, 8, 16, 32, 64, 128])}
        if names:
            when[random.choice(names)] = random.choice([1, 2, 3])
        rest = {"dtype": ["float16"], "gqa_group": {"max": random.randrange(1, 16)}}
        rules = [{"when": when, "value": 1}, {"when": rest, "value": 2}, {"value": 3}]
        names.append(f"d{number}")
        tree["derive"][names[-1]] = {"first_match": rules}
    for entry in tree["backends"]:
        sizes = {"min": random.randrange(16, 128, 8), "max": random.randrange(128, 512, 8)}
        entry["accepts"]["head_size"] = sizes
        entry["constraints"] = [
            {
                "when": {random.choice(names): random.choice([1, 2, 3]), "num_heads": {"max": 16}},
                "code": "NEVER",
                "reason": "Drawn.",
            }
        ]
    return yaml.safe_dump(tree, sort_keys=False)
