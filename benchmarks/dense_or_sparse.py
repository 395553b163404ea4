"""What giving up dense prefill costs a sparse MLA model: ``python -m benchmarks.dense_or_sparse``.

One layer, one prompt without cached context, two ways to compute its attention on one rank:

* **dense**: K and V are expanded from the latent (two matrix products), and ordinary heads attend
  to all tokens before them;
* **sparse**: queries are brought to the latent (a product for each head), attend to their top-k
  tokens, and the output is brought back (another).

Up to ``index_topk`` tokens both give the same result, which is checked; beyond, only the sparse one
is what the model computes, and dense is shown for comparison. The indexer that picks the top-k is
not timed: the sparse way needs it and the dense one does not. What the adapters copy because the
contract has pages (dense: K and V; sparse: positions to slots) is timed apart and left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from backends.batches import make_batch
from backends.contract import Batch, PagedKV, relative_error
from backends.flashinfer import sparse_mla_sm90
from backends.flashinfer.pages import Slots, Tokens, find_slots
from backends.probe import probe_device, probe_facts
from backends.timing import METHOD, draw_inputs, sample_rows, time_run
from selector import Layer, Selector
from selector.models import load_model, shard
from selector.values import Request

MODELS = ("deepseek-v3.2", "glm-5.2-fp8")
RANKS = (8, 1)
PROMPTS = tuple(128 << n for n in range(9))
AGREE = 3e-2


def main() -> int:
    """Times every prompt of every model, and writes what came out after each."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--out", type=Path, default=Path("dense-or-sparse.json"))
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--longest", type=int, default=PROMPTS[-1], help="tokens of a prompt")
    asked = options.parse_args()
    device, facts = probe_device(), probe_facts()
    if device.capability != "9.0":
        print(f"{device} is no GPU of compute capability 9.0, which this is about", file=sys.stderr)
        return 2
    said = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": msgspec.to_builtins(device),
        "facts": dict(facts.values),
        "seed": asked.seed,
        "command": f"python -m benchmarks.dense_or_sparse --seed {asked.seed}",
        "method": METHOD["cuda"],
    }
    layers = [shard(load_model(name), tp_size=RANKS[0]).groups[0].layer for name in MODELS]
    sparse_mla_sm90.prepare(batch for layer in layers for batch in batches_of(layer, PROMPTS[0]))
    rows: list[dict[str, Any]] = []
    for row in measure(asked.seed, asked.longest):
        rows.append(row)
        asked.out.write_text(json.dumps({**said, "rows": rows}, indent=1) + "\n", "utf-8")
        print(f"{row['model']} {row['num_heads']} heads {row['prompt']} tokens: {_words(row)}")
    return 0 if rows and all("fault" not in row for row in rows) else 1


def _words(row: dict[str, Any]) -> str:
    if "fault" in row:
        return str(row["fault"])
    return f"dense {row['dense']['total_us']:,.0f} µs, sparse {row['sparse']['total_us']:,.0f} µs"


def measure(seed: int, longest: int) -> Iterator[dict[str, Any]]:
    """Yields the times of each model, rank and prompt; a fault in place of times."""
    for name in MODELS:
        for ranks in RANKS:
            layer = shard(load_model(name), tp_size=ranks).groups[0].layer
            for prompt in (prompt for prompt in PROMPTS if prompt <= longest):
                row = {
                    "model": name,
                    "tp_size": ranks,
                    "num_heads": layer.get("num_heads"),
                    "index_topk": layer.get("index_topk"),
                    "prompt": prompt,
                }
                try:
                    yield row | time_prompt(layer, prompt, seed)
                except Exception as error:  # the others are still wanted
                    yield row | {"fault": f"{type(error).__name__}: {error}".splitlines()[0]}


def batches_of(layer: Layer, prompt: int) -> tuple[Batch, Batch]:
    """The prompt on the dense and on the sparse path, as the manifest words the question."""
    bound = Selector.load().bind("9.0", layer)
    asked = bound.asked(Request(prompt, prompt))
    lengths = [(prompt, prompt)]
    return make_batch(asked, lengths, "dense_mha"), make_batch(asked, lengths, "sparse_mqa")


def time_prompt(layer: Layer, prompt: int, seed: int, device: str = "cuda") -> dict[str, Any]:
    """The times of both ways for one prompt, part by part, in microseconds."""
    dense, sparse = batches_of(layer, prompt)
    values = make_values(sparse, seed, device)
    dense_times, dense_rows = time_dense(dense, values, device)
    sparse_times, sparse_rows = time_sparse(sparse, values, seed, device)
    found: dict[str, Any] = {"dense": dense_times, "sparse": sparse_times}
    if sparse.topk is not None and prompt <= sparse.topk:
        found["error"] = relative_error(sparse_rows, dense_rows)
        if found["error"] > AGREE:
            found["fault"] = f"dense and sparse differ by {found['error']:.2g}"
    return found


class Values(msgspec.Struct, frozen=True):
    """One prompt's tensors, before either way: bfloat16.

    Attributes:
        q_nope: ``[tokens, heads, qk_nope_head_dim]``.
        q_rope: ``[tokens, heads, qk_rope_head_dim]``.
        latent: ``[tokens, kv_lora_rank]``.
        k_rope: ``[tokens, qk_rope_head_dim]``, of all heads.
        up_k: W_UK, ``[heads, qk_nope_head_dim, kv_lora_rank]``.
        up_v: W_UV, ``[heads, kv_lora_rank, v_head_dim]``.
    """

    q_nope: Any
    q_rope: Any
    latent: Any
    k_rope: Any
    up_k: Any
    up_v: Any


def make_values(batch: Batch, seed: int, device: str) -> Values:
    """Standard-normal tensors; weights so that what they make is about standard-normal too."""
    import torch

    assert batch.mla is not None, "an MLA layer"
    mla, heads, tokens = batch.mla, batch.num_heads, sum(batch.query_lens)
    draw = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int, scale: float = 1.0) -> Any:
        drawn = torch.randn(*shape, generator=draw, device=device, dtype=torch.float32)
        return (drawn * scale).to(torch.bfloat16)

    scale = float(mla.kv_lora_rank**-0.5)
    return Values(
        normal(tokens, heads, mla.qk_nope_head_dim),
        normal(tokens, heads, mla.qk_rope_head_dim),
        normal(tokens, mla.kv_lora_rank),
        normal(tokens, mla.qk_rope_head_dim),
        normal(heads, mla.qk_nope_head_dim, mla.kv_lora_rank, scale=scale),
        normal(heads, mla.kv_lora_rank, mla.v_head_dim, scale=scale),
    )


def time_dense(batch: Batch, values: Values, device: str) -> tuple[dict[str, float], Any]:
    """Expanding, attending; the time of each, and rows of the output."""
    import torch

    tokens, heads, head_size = sum(batch.query_lens), batch.num_heads, batch.head_size
    rank, nope = values.latent.shape[1], values.q_nope.shape[2]
    to_k = values.up_k.reshape(heads * nope, rank).T.contiguous()
    to_v = values.up_v.transpose(0, 1).reshape(rank, -1).contiguous()
    k = torch.empty(tokens, heads, head_size, dtype=torch.bfloat16, device=device)
    v = torch.empty(tokens, heads, batch.v_head_size, dtype=torch.bfloat16, device=device)

    def expand() -> None:
        k[..., :nope] = (values.latent @ to_k).view(tokens, heads, nope)
        k[..., nope:] = values.k_rope[:, None]
        torch.mm(values.latent, to_v, out=v.view(tokens, -1))

    expand()
    q = torch.cat((values.q_nope, values.q_rope), dim=2)
    kv = paged(batch, k, v, device)
    plan, plan_us = planned(batch, device)
    rows = sample_rows(plan.run(q, kv))
    copies = Tokens.of(batch, torch.device(device))
    times = {
        "expand_us": median(expand, device),
        "run_us": median(lambda: plan.run(q, kv), device),
        "copy_us": median(lambda: copies.gather(kv), device),
        "plan_us": plan_us,
    }
    attention = times["run_us"] - times["copy_us"]
    return times | {"attention_us": attention, "total_us": times["expand_us"] + attention}, rows


def time_sparse(
    batch: Batch, values: Values, seed: int, device: str
) -> tuple[dict[str, float], Any]:
    """To the latent, attending, back again; the time of each, and rows of the output."""
    import torch

    rank = values.latent.shape[1]
    q = torch.empty(
        sum(batch.query_lens), batch.num_heads, batch.head_size, dtype=torch.bfloat16, device=device
    )
    q[..., rank:] = values.q_rope

    def absorb() -> None:
        by_head = torch.bmm(values.q_nope.transpose(0, 1), values.up_k)
        q[..., :rank] = by_head.transpose(0, 1)

    absorb()
    keys = torch.cat((values.latent, values.k_rope), dim=1)[:, None]
    kv = paged(batch, keys, None, device)
    indices = draw_inputs(batch, device, seed).indices
    plan, plan_us = planned(batch, device)
    out = plan.run(q, kv, None, indices)

    def back(latent: Any) -> Any:
        return torch.bmm(latent.transpose(0, 1), values.up_v).transpose(0, 1)

    rows = sample_rows(back(out))
    slots = Slots.of(batch, torch.device(device))
    times = {
        "absorb_us": median(absorb, device),
        "run_us": median(lambda: plan.run(q, kv, None, indices), device),
        "slots_us": median(lambda: slots.fill(kv, indices), device),
        "back_us": median(lambda: back(out), device),
        "plan_us": plan_us,
    }
    attention = times["run_us"] - times["slots_us"]
    total = times["absorb_us"] + attention + times["back_us"]
    return times | {"attention_us": attention, "total_us": total}, rows


def planned(batch: Batch, device: str) -> tuple[Any, float]:
    """The batch made ready, and the time of that; once, for it takes seconds for long prompts."""
    begin = perf_counter()
    plan = sparse_mla_sm90.plan(batch, device)
    return plan, 1e6 * (perf_counter() - begin)


def median(run: Any, device: str) -> float:
    """The median time of a run on the device, in microseconds."""
    run()
    return time_run(run, device).median_us


def paged(batch: Batch, k: Any, v: Any, device: str) -> PagedKV:
    """Keys and values of one request in pages; without values, those are the first of the keys."""
    import torch

    tokens = len(k)
    pages = -(-tokens // batch.page_size)
    table = torch.randperm(pages, device=device).to(torch.int32)[None]
    at = torch.arange(tokens, device=device)
    slots = find_slots(table, torch.zeros_like(at), at, batch.page_size).long()

    def laid(values: Any) -> Any:
        held = torch.zeros(pages * batch.page_size, *values.shape[1:], dtype=k.dtype, device=device)
        held[slots] = values
        return held.view(pages, batch.page_size, *values.shape[1:])

    k_pages = laid(k)
    v_pages = k_pages[..., : batch.v_head_size] if v is None else laid(v)
    return PagedKV(
        k_pages, v_pages, table, torch.tensor([tokens], dtype=torch.int32, device=device)
    )


if __name__ == "__main__":
    sys.exit(main())
