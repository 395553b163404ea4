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
    ]
    for (model, ranks), rows in _groups(said):
        heads = rows[0]["num_heads"]
        lines += ["", f"## {model}, tensor parallel {ranks}: {heads} heads a rank", ""]
        lines += _table(rows)
    return "\n".join(lines) + "\n"


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
