"""How many configs are read exactly: figures, and a table of misses by field.

    python tools/score_models.py [CORPUS.jsonl] [--misses]

A row of the corpus holds a ``config`` and the layers that the model really ``expected`` has, taken
from running model classes. Without a path, the whole corpus is scored where it lies beside the
checkout, else the part of it that is committed with the tests. Rows of text models with confidence
high or medium count; the others must be read, or refused with a reason.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from selector.errors import AttnselError
from selector.models import presets, read_config
from selector.values import LayerGroup, Model

ROOT = Path(__file__).parent.parent
WHOLE = ROOT.parent / "shared" / "models" / "dev.jsonl"
PART = ROOT / "tests" / "unit" / "models" / "data" / "corpus.jsonl"
KINDS = {
    "decoder": "self",
    "encoder": "encoder",
    "encoder_only": "encoder",
    "encoder_decoder": "cross",
}
SIZES = ("head_size", "v_head_size", "num_heads", "num_kv_heads")
LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")

Layer = dict[str, object]


class Score(NamedTuple):
    """One row: what differs, why it was refused, and how much processor time reading took."""

    row: Mapping[str, Any]
    misses: tuple[str, ...]
    refusal: str
    seconds: float

    @property
    def counts(self) -> bool:
        """Whether the row is one of those that must be right."""
        return self.row["domain"] == "text" and self.row["confidence"] != "low"

    @property
    def exact(self) -> bool:
        """Whether everything is as expected."""
        return not self.misses and not self.refusal


def layer_read(group: LayerGroup) -> Layer:
    """A group in the words of the corpus."""
    fields = group.layer.fields
    told: Layer = {name: fields[name] for name in SIZES}
    told |= {"kind": KINDS[str(fields["attn_type"])], "count": group.count}
    told |= {name: fields[name] for name in ("mla", "sparse", "alibi", "chunked", "soft_cap")}
    told |= {"sinks": fields["sink"], "window": fields["sliding_window"] != "unset"}
    if fields["mla"]:
        latent = {name: fields[name] for name in (*LATENT, "index_topk")}
        told |= {name: None if size == "absent" else size for name, size in latent.items()}
    return told


def layer_expected(layer: Mapping[str, Any]) -> Layer:
    """A layer of the corpus with presence in place of widths that engines count differently."""
    told: Layer = {name: layer[name] for name in (*SIZES, "kind", "count")}
    told |= {name: layer.get(name, False) for name in ("mla", "sparse", "alibi", "sinks")}
    told["window"] = layer.get("sliding_window") is not None
    told["chunked"] = layer.get("chunk_size") is not None
    told["soft_cap"] = layer.get("soft_cap") is not None
    if told["mla"]:
        told |= {name: layer[name] for name in (*LATENT, "index_topk")}
    return told


def compare(model: Model, expected: Mapping[str, Any]) -> Iterator[str]:
    """Yields the names of the fields that differ."""
    read = [layer_read(group) for group in model.groups]
    wanted = [layer_expected(layer) for layer in expected["layers"]]
    if sorted(map(_spelled, read)) != sorted(map(_spelled, wanted)):
        if len(read) != len(wanted):
            yield "number of kinds"
        for one, other in zip(read, wanted, strict=False):
            yield from (name for name in other if one.get(name) != other[name])
    free = expected["attention_free"] or bool(expected["non_attention_layers"])
    if bool(model.attention_free) != free:
        yield "layers without attention"
    for group in model.groups[:1]:
        yield from _compare_dtypes(group, expected)


def _spelled(layer: Layer) -> str:
    return json.dumps(layer, sort_keys=True)


def _compare_dtypes(group: LayerGroup, expected: Mapping[str, Any]) -> Iterator[str]:
    fields = group.layer.fields
    declared = None if group.origins["dtype"] == "default" else fields["dtype"]
    if declared != expected["dtype"]:
        yield "dtype"
    if fields["kv_cache_dtype"] != expected["kv_cache_dtype"]:
        yield "kv_cache_dtype"
    if fields.get("per_head_quant_scales", False) != expected["kv_per_head_scales"]:
        yield "scales per head"
    prefix = expected["mm_prefix_lm"]
    if prefix is not None and fields.get("mm_prefix", False) != prefix:
        yield "mm_prefix"


def score(row: Mapping[str, Any]) -> Score:
    """What the reader makes of one row."""
    start = time.process_time()
    try:
        model = read_config(row["config"], name=row["id"])
    except AttnselError as error:
        return Score(row, (), str(error), time.process_time() - start)
    spent = time.process_time() - start
    return Score(row, tuple(compare(model, row["expected"])), "", spent)


def find_corpus(arguments: list[str]) -> Path:
    """The corpus to score."""
    given = [argument for argument in arguments if not argument.startswith("-")]
    if given:
        return Path(given[0])
    return WHOLE if WHOLE.exists() else PART


def summary(scores: list[Score]) -> Iterator[str]:
    """Yields the figures, a line each."""
    scored = [one for one in scores if one.counts]
    exact = sum(one.exact for one in scored)
    yield f"read exactly: {exact} of {len(scored)} ({exact / max(len(scored), 1):.1%})"
    missed = Counter(name for one in scored for name in set(one.misses))
    missed["refused"] = sum(bool(one.refusal) for one in scored)
    yield "misses by field:"
    shown = [(name, count) for name, count in missed.most_common() if count]
    yield from (f"  {name:<28}{count:>4}" for name, count in shown)
    if not shown:
        yield "  none"
    others = [one for one in scores if not one.counts]
    read = sum(not one.refusal for one in others)
    same = sum(one.exact for one in others)
    yield (
        f"not scored: {len(others)}, of which {read} are read ({same} exactly) and "
        f"{len(others) - read} refused with a reason"
    )
    milliseconds = sorted(1e3 * one.seconds for one in scores)
    yield (
        f"processor time to read one: median {milliseconds[len(milliseconds) // 2]:.2f} ms, "
        f"longest {milliseconds[-1]:.2f} ms"
    )


def main(arguments: list[str]) -> int:
    """Prints the figures; exit code 1 when fewer than 97 % are exact."""
    corpus = find_corpus(arguments)
    rows = [json.loads(line) for line in corpus.read_text("utf-8").splitlines() if line]
    first = score(rows[0]).seconds
    scores = [score(row) for row in rows]
    print(f"{corpus.name}: {len(rows)} configs; {len(presets())} presets")
    print("\n".join(summary(scores)))
    print(f"processor time to read the first, with its tables: {1e3 * first:.2f} ms")
    if "--misses" in arguments:
        for one in scores:
            if one.counts and not one.exact:
                print(f"{one.row['id']}: {one.refusal or ', '.join(dict.fromkeys(one.misses))}")
    scored = [one for one in scores if one.counts]
    return 0 if sum(one.exact for one in scored) >= 0.97 * len(scored) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
