"""The page of what :mod:`benchmarks.dense_or_sparse` measured: a table, and a plot as SVG.

``python -m benchmarks.dense_or_sparse_page dense-or-sparse.json docs`` writes
``docs/dense-or-sparse.md`` and ``docs/dense-or-sparse.svg``; nothing in them is written by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import groupby
from math import log2
from pathlib import Path
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _TOP = 360, 240, 56, 34
_COLORS = {"dense": "#1f6feb", "sparse": "#cf6a1b"}


def main(file: Path, folder: Path) -> None:
    """Writes the page and the plot."""
    said = json.loads(file.read_text("utf-8"))
    (folder / "dense-or-sparse.svg").write_text(plot(said), "utf-8")
    (folder / "dense-or-sparse.md").write_text(page(said), "utf-8")


def page(said: dict[str, Any]) -> str:
    """The page as Markdown."""
    device, facts = said["device"], said["facts"]
    versions = ", ".join(
        f"{name} {facts[name]}"
        for name in ("flashinfer-python", "torch", "cuda", "driver")
        if facts.get(name)
    )
    lines = [
        "# Dense or sparse prefill",
        "",
        "What a sparse MLA model pays where its prompts cannot be prefilled densely. One attention "
        "layer on one rank, one prompt, nothing cached; times in microseconds.",
        "",
        f"Measured on {device['product']} ({device['capability']}), {said['date'][:10]}, with "
        f"{versions}. Repeat with `{said['command']}`; this page is written by "
        "`python -m benchmarks.dense_or_sparse_page`.",
        "",
        f"{said['method']}",
        "",
        "*expand*: K and V from the latent. *absorb*: queries to the latent; *back*: the output "
        "from it. Up to the top-k both ways give one result, and *differ* is the relative error "
        "between them; beyond it only sparse is what the model computes. The indexer, which only "
        "the sparse way needs, is not in the figures.",
        "",
        "![Time by length of the prompt](dense-or-sparse.svg)",
        "",
        "## What it says",
        "",
        _within(said),
        "",
        "Beyond the top-k the model computes sparsely in any case; where the two lines cross is "
        "where top-k attention starts to save time at all on these kernels.",
        "",
        "## What it does not say",
        "",
        *_LIMITS,
    ]
    for (model, ranks), rows in _groups(said):
        heads = rows[0]["num_heads"]
        lines += ["", f"## {model}, tensor parallel {ranks}: {heads} heads a rank", ""]
        lines += _table(rows)
    return "\n".join(lines) + "\n"


_LIMITS = (
    "- Nothing of 12.0 (RTX PRO 6000, RTX 50), where there is no dense prefill to give up: "
    "FlashInfer's sparse kernels there are others than these (its own, over packed fp8 pages), "
    "there is no FA3, and memory has less than half the bandwidth. What carries over is that a "
    "prompt within the top-k pays for gathering its tokens one by one without needing to; how "
    "much it pays there has to be measured there.",
    "- Nothing of kernels made for sparse MLA on 9.0, such as FlashMLA's: the sparse way here is "
    "FlashInfer's FA3 MLA wrapper with pages of one token, as in vLLM's backend for 9.0.",
    "- Nothing of a whole model: one layer's attention, without projections, indexer, experts or "
    "communication, and without cached context, which the dense way would have to expand too.",
)


def _within(said: dict[str, Any]) -> str:
    """What prompts that fit in the top-k pay."""
    rows = [row for row in said["rows"] if "dense" in row and row["prompt"] <= row["index_topk"]]
    ratios = [row["sparse"]["total_us"] / row["dense"]["total_us"] for row in rows]
    most = max(zip(ratios, rows, strict=True), key=lambda pair: pair[0])[1]
    lost = most["sparse"]["total_us"] - most["dense"]["total_us"]
    return (
        f"Prompts within the top-k of {rows[0]['index_topk']:,} tokens, where both ways give the "
        f"same result, take {min(ratios):.2f} to {max(ratios):.2f} times as long without dense "
        f"prefill; most for {most['model']} with {most['num_heads']} heads a rank at "
        f"{most['prompt']:,} tokens: {lost:,.0f} µs more in every layer."
    )


def _groups(said: dict[str, Any]) -> Iterator[tuple[tuple[str, int], list[dict[str, Any]]]]:
    for key, rows in groupby(said["rows"], lambda row: (row["model"], row["tp_size"])):
        yield key, list(rows)


def _table(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield (
        "| tokens | dense | expand | attention | sparse | absorb | attention | back | "
        "sparse / dense | differ |"
    )
    yield "| ---: " * 10 + "|"
    for row in rows:
        if "dense" not in row:
            yield f"| {row['prompt']:,} | {row['fault']} |" + " |" * 8
            continue
        dense, sparse = row["dense"], row["sparse"]
        figures = (
            *(dense[part] for part in ("total_us", "expand_us", "attention_us")),
            *(sparse[part] for part in ("total_us", "absorb_us", "attention_us", "back_us")),
        )
        ratio = sparse["total_us"] / dense["total_us"]
        differ = f"{row['error']:.1e}" if "error" in row else "–"
        cells = " | ".join(f"{figure:,.0f}" for figure in figures)
        yield f"| {row['prompt']:,} | {cells} | {ratio:.2f} | {differ} |"


def plot(said: dict[str, Any]) -> str:
    """The plot as SVG: one panel for each model and rank, both axes on a log scale."""
    panels = [(key, [row for row in rows if "dense" in row]) for key, rows in _groups(said)]
    panels = [(key, rows) for key, rows in panels if rows]
    width, height = _LEFT + _WIDTH + 24, _TOP + _HEIGHT + 44
    body = [
        f'<g transform="translate({index % 2 * width},{index // 2 * height})">{_panel(*panel)}</g>'
        for index, panel in enumerate(panels)
    ]
    size = f"{2 * width} {(len(panels) + 1) // 2 * height}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" '
        'font-family="sans-serif" font-size="11">'
        '<rect width="100%" height="100%" fill="white"/>' + "\n".join(body) + "</svg>\n"
    )


def _panel(key: tuple[str, int], rows: list[dict[str, Any]]) -> str:
    prompts = [row["prompt"] for row in rows]
    times = [row[way]["total_us"] for row in rows for way in _COLORS]
    low, high = int(log2(min(times))), int(log2(max(times))) + 1
    first, last = log2(min(prompts)), log2(max(prompts))

    def x(tokens: float) -> float:
        return _LEFT + _WIDTH * (log2(tokens) - first) / max(1, last - first)

    def y(time_us: float) -> float:
        return _TOP + _HEIGHT * (high - log2(time_us)) / (high - low)

    model, ranks = key
    parts = [
        f'<text x="{_LEFT}" y="18" font-weight="bold">{model}, {rows[0]["num_heads"]} heads a rank '
        f"(tensor parallel {ranks})</text>"
    ]
    for power in range(low, high + 1):
        at = y(2**power)
        parts.append(f'<path d="M{_LEFT} {at:.1f}h{_WIDTH}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{2**power:,}</text>'
        )
    for tokens in prompts:
        parts.append(
            f'<text x="{x(tokens):.1f}" y="{_TOP + _HEIGHT + 16}" '
            f'text-anchor="middle">{tokens}</text>'
        )
    at = x(rows[0]["index_topk"])
    parts.append(f'<path d="M{at:.1f} {_TOP}v{_HEIGHT}" stroke="#999" stroke-dasharray="4 3"/>')
    parts.append(f'<text x="{at + 4:.1f}" y="{_TOP + 12}" fill="#666">top-k</text>')
    for way, color in _COLORS.items():
        points = " ".join(f"{x(r['prompt']):.1f},{y(r[way]['total_us']):.1f}" for r in rows)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        end = y(rows[-1][way]["total_us"])
        parts.append(
            f'<text x="{_LEFT + _WIDTH - 4}" y="{end - 6:.1f}" text-anchor="end" '
            f'fill="{color}">{way}</text>'
        )
    parts.append(
        f'<text x="{_LEFT + _WIDTH / 2}" y="{_TOP + _HEIGHT + 34}" text-anchor="middle">'
        "tokens of the prompt; microseconds</text>"
    )
    return "".join(parts)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
