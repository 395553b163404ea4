"""How long a decision takes: plans, cells, the definition, and a bare dict lookup beside them."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Sequence
from functools import partial

from selector import Device, Facts, Layer, Request, Selector
from selector.devices import find_device
from selector.loading import loads
from selector.plan.cells import Cells
from selector.plan.plan import Plan

from .harness import Figure, median_of, once

ENTRIES = (10, 100, 1000)
MLA = {
    "head_size": 576,
    "num_kv_heads": 1,
    "mla": True,
    "sparse": True,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 256,
}
REQUESTS = ((1, 500), (100, 1000), (1, 7), (3000, 9000))


def figures() -> list[Figure]:
    """All figures of this file."""
    return [*bare(), *bound(), *plan(), *scaling(), *building()]


def bare() -> list[Figure]:
    """A dict lookup, for scale."""
    table = {number: number for number in range(100)}
    return [Figure("PLAN00", "bare dict lookup", median_of(lambda: table[5]), "ns")]


def bound() -> list[Figure]:
    """Requests of one bound layer."""
    found = []
    for place, (name, gpu, layer) in enumerate(_layers(), 1):
        one = Selector.load(name).bind(gpu, layer, closed_world=True)
        cells = Cells(one)
        for query_len, seq_len in REQUESTS:
            cells.resolve(query_len, seq_len)
        kind = "sparse MLA" if layer.get("sparse") else "GQA"
        what = f"{name or 'capabilities.yaml'} on {gpu}, {kind}"
        nanoseconds = [median_of(partial(cells.resolve, *lengths)) for lengths in REQUESTS]
        found.append(Figure(f"PLAN1{place}", f"cells.resolve, {what}", max(nanoseconds), "ns", 300))
        naive = median_of(lambda one=one: one.resolve(100, 1000), number=20)
        found.append(Figure(f"PLAN2{place}", f"definition, {what}", naive / 1e3, "µs"))
    return found


def plan() -> list[Figure]:
    """Layers and requests that were not seen before, and the same again."""
    found = []
    everything = Plan.load("vllm-0.33.0")
    facts = Facts(dict.fromkeys(everything.manifest.facts, True))
    device = find_device("10.0")
    for place, (what, draw) in enumerate((("GQA", _gqa), ("sparse MLA", _sparse)), 1):
        source = random.Random(1)
        asked = [(draw(source), _request(source)) for _ in range(6000)]
        again = [(layer, _request(source)) for layer, _ in asked[3000:]]

        def ask(some: Sequence[tuple[Layer, Request]]) -> float:
            return _each(everything, device, facts, some, closed_world=True)

        def median(some: Sequence[tuple[Layer, Request]]) -> float:
            chunks = [some[at : at + 500] for at in range(0, len(some), 500)]
            return sorted(map(ask, chunks))[len(chunks) // 2]

        ask(asked[:3000])
        unseen, request, seen = median(asked[3000:]), median(again), median(asked[3000:])
        measured = (
            ("PLAN3", f"unseen layer and request, {what}", unseen / 1e3, "µs", 5),
            ("PLAN8", f"unseen request, {what}", request / 1e3, "µs", 5),
            ("PLAN4", f"seen, {what}", seen, "ns", 400),
        )
        found += [
            Figure(f"{id_}{place}", f"plan.resolve, {name}", value, unit, most)
            for id_, name, value, unit, most in measured
        ]
    return found


def scaling() -> list[Figure]:
    """The same question to manifests of ever more entries."""
    found = []
    for place, number in enumerate(ENTRIES):
        many = Plan(loads(_manifest(number)))
        source = random.Random(2)
        layers = [_gqa(source) for _ in range(4000)]
        device, facts, request = Device("cuda", "10.0"), Facts(), Request(100, 1000)
        asked = [(layer, request) for layer in layers]
        _each(many, device, facts, asked[:2000])
        each = _each(many, device, facts, asked[2000:]) / 1e3
        found.append(
            Figure(f"PLAN5{place}", f"plan.resolve, unseen, {number:,} entries", each, "µs")
        )
    return found


def _each(
    plan: Plan,
    device: Device,
    facts: Facts,
    asked: Sequence[tuple[Layer, Request]],
    closed_world: bool = False,
) -> float:
    """The time of a question, in nanoseconds; without garbage collection, as timeit does it."""
    gc.disable()
    begin = time.process_time_ns()
    for layer, request in asked:
        plan.resolve(device, layer, facts, request, closed_world=closed_world)
    took = time.process_time_ns() - begin
    gc.enable()
    return took / len(asked)


def building() -> list[Figure]:
    """Making the plan of each shipped manifest, and starting with it again."""
    found = []
    for place, name in enumerate(("vllm-0.33.0", None), 1):
        manifest = Selector.load(name).manifest
        what = name or "capabilities.yaml"
        made = once(lambda manifest=manifest: Plan(manifest))
        found.append(Figure(f"PLAN6{place}", f"plan of {what}", made / 1e6, "ms", 3000))
        Plan.load(name)
        again = median_of(lambda name=name: Plan.load(name), number=1, repeat=9)
        found.append(Figure(f"PLAN7{place}", f"next start with {what}", again / 1e6, "ms", 20))
    return found


def _layers() -> list[tuple[str | None, str, Layer]]:
    plain = {"dtype": "bfloat16", "kv_cache_dtype": "auto", "attn_type": "decoder"}
    gqa = Layer.of(head_size=128, num_heads=64, num_kv_heads=8, **plain)
    sparse = Layer.of(**{**MLA, **plain}, num_heads=64, index_topk=2048)
    return [
        ("vllm-0.33.0", "9.0", gqa),
        (None, "9.0", gqa),
        ("vllm-0.33.0", "12.0", gqa),
        ("vllm-0.33.0", "10.0", sparse),
        ("vllm-0.33.0", "12.0", sparse),
    ]


def _request(source: random.Random) -> Request:
    query_len = source.choice((1, source.randrange(1, 70_000)))
    return Request(query_len, query_len + source.randrange(60_000))


def _gqa(source: random.Random) -> Layer:
    num_kv_heads = source.choice((1, 2, 4, 8))
    return Layer.of(
        head_size=source.randrange(8, 513, 8),
        num_heads=num_kv_heads * source.randrange(1, 17),
        num_kv_heads=num_kv_heads,
        dtype=source.choice(("bfloat16", "float16")),
        kv_cache_dtype=source.choice(("auto", "fp8", "bfloat16")),
        sliding_window=source.choice(("unset", source.randrange(1, 5000))),
        sink=source.choice((True, False)),
        attn_type="decoder",
        mla=False,
        sparse=False,
    )


def _sparse(source: random.Random) -> Layer:
    return Layer.of(
        **MLA,
        num_heads=source.randrange(1, 129),
        dtype=source.choice(("bfloat16", "float16")),
        kv_cache_dtype=source.choice(("auto", "fp8", "fp8_ds_mla")),
        attn_type="decoder",
        index_topk=source.randrange(64, 4097, 64),
    )


def _manifest(entries: int) -> str:
    """Dense entries of which each accepts something else; one priority list names them all."""
    import json

    source = random.Random(3)
    backends = [
        {
            "name": f"backend_{number}",
            "source": "drawn",
            "mla": False,
            "sparse": False,
            "accepts": {
                "platform": "cuda",
                "capability": source.sample(["8.0", "8.9", "9.0", "10.0", "12.0"], 3),
                "head_size": source.sample([64, 80, 96, 128, 192, 256], 2),
                "dtype": source.sample(["float16", "bfloat16"], 1),
                "kv_cache_dtype": source.sample(["auto", "fp8", "bfloat16"], 1),
                "block_size": "any",
                "attn_type": "decoder",
                "sink": source.choice([True, False, "any"]),
                "sliding_window": source.choice(["any", "unset", {"max": 1024}]),
            },
            "constraints": [
                {
                    "when": {"sink": True, "head_size": source.choice([64, 128])},
                    "require": {"num_heads": {"max": source.choice([16, 32])}},
                    "code": "COMBINATION",
                    "reason": "Drawn.",
                }
            ],
            "phases": {"prefill": {}, "decode": {}},
            "decode_threshold": 1,
            "prefill_paths": [{"path": "mha", "reason": "Always."}],
        }
        for number in range(entries)
    ]
    order = [backend["name"] for backend in backends]
    return json.dumps(
        {
            "attnsel": 1,
            "name": "many",
            "version": "1",
            "backends": backends,
            "priorities": [{"order": order, "reason": "As drawn."}],
        }
    )
