"""Manifests as teams would keep them, drawn by number: entries of every kind, lists, reasons."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["manifest", "write"]

_CAPABILITIES = ("8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1")
_HEAD = """\
# yaml-language-server: $schema=manifest.schema.json
attnsel: 1
name: drawn_{number}
version: "1.{number}"
source: https://example.org/drawn/{number}
facts:
  library: {{type: version, description: The library that holds the kernels.}}
  jit: {{type: boolean, description: Whether kernels can be compiled.}}
derive:
  page:
    description: How pages are cut.
    source: https://example.org/drawn/{number}/page
    first_match:
      - {{when: {{mla: true}}, value: large}}
      - {{value: small}}
backends:
"""
_ENTRY = """\
  # Entry {place} of {number}: what it takes was drawn.
  - name: {name}
    description: Backend {place}, as drawn for manifest {number}.
    source: https://example.org/drawn/{number}/{place}
    mla: {mla}
    sparse: {sparse}
{dense}    requires: {{library: ">=1.{minor}"}}
    kv_layout: [NHD]
    accepts:
      platform: [cuda]
      capability: [{capability}]
      dtype: [{dtype}]
      kv_cache_dtype: [{kv}]
      head_size: {head_size}
      block_size: {{multiple_of: {block}, or: [unset]}}
      attn_type: [decoder]
      sink: {sink}
      sliding_window: {window}
    constraints:
      - when: {{head_size: {{min: {large}}}, kv_cache_dtype: {narrow}}}
        require: {{num_heads: {{max: {heads}}}}}
        code: MANY_HEADS_{place}
        reason: The kernel's shared memory holds {heads} heads of this size.
    phases: {{prefill: {{}}, decode: {{}}}}
    decode_threshold: {threshold}
    prefill_paths:
{paths}"""
_PATHS = """\
      - {{path: {short}, when: {{query_len: {{max: {cut}}}}}, reason: Short prompts.}}
      - {{path: {path}, reason: All other prompts.}}
"""
_LIST = """\
  - when: {when}
    order: [{order}]
    reason: {reason}
"""


class _Drawn(NamedTuple):
    """An entry: its name, its kind, and the compute capabilities it takes."""

    name: str
    kind: str
    capabilities: tuple[str, ...]


def manifest(number: int, entries: int = 40) -> str:
    """A manifest of so many entries; the same number gives the same one."""
    dice = random.Random(f"manifest {number}")
    drawn = []
    parts = [_HEAD.format(number=number)]
    for place in range(entries):
        kind = dice.choice(("dense", "dense", "dense", "mla", "sparse"))
        capabilities = tuple(sorted(dice.sample(_CAPABILITIES, 4), key=float))
        one = _Drawn(f"{kind}_{place}", kind, capabilities)
        drawn.append(one)
        parts.append(_entry(dice, number, place, one))
    parts.append("priorities:\n")
    for kind in ("dense", "mla", "sparse"):
        parts += _lists(dice, kind, [one for one in drawn if one.kind == kind])
    return "".join(parts)


def _entry(dice: random.Random, number: int, place: int, one: _Drawn) -> str:
    mla, sparse = one.kind != "dense", one.kind == "sparse"
    dense = ""
    if sparse:
        dense = (
            "    dense_prefill: false\n"
            f"    rationale: The kernels of release 1.{place} have no dense path here.\n"
            f"    evidence: [https://example.org/drawn/{number}/{place}/dense]\n"
        )
    sizes = [576] if mla else sorted(dice.sample((64, 96, 128, 256), 3))
    kv = dice.choice((("auto",), ("auto", "fp8"), ("auto", "bfloat16", "fp8")))
    return _ENTRY.format(
        number=number,
        place=place,
        name=one.name,
        mla=str(mla).lower(),
        sparse=str(sparse).lower(),
        dense=dense,
        minor=dice.randrange(20),
        capability=", ".join(f'"{capability}"' for capability in one.capabilities),
        dtype=dice.choice(("bfloat16", "float16, bfloat16")),
        kv=", ".join(kv),
        narrow=kv[-1],
        head_size=f"[{', '.join(map(str, sizes))}]",
        block=dice.choice((1, 16, 64)),
        sink=dice.choice(("[false]", "any")),
        window=dice.choice(("any", "[unset]", "{max: 4096, or: [unset]}")),
        large=sizes[-1],
        heads=dice.choice((16, 32, 64)),
        threshold=dice.choice((1, 1, 128)),
        paths=_PATHS.format(
            short="sparse_mqa" if sparse else "mqa",
            path="sparse_mqa" if sparse else "mha",
            cut=dice.choice((4, 64, 256)),
        ),
    )


def _lists(dice: random.Random, kind: str, entries: Sequence[_Drawn]) -> Iterator[str]:
    """Lists for one kind of layer, by device; each names the entries that run there."""
    mla, sparse = str(kind != "dense").lower(), str(kind == "sparse").lower()
    for capability in _CAPABILITIES:
        fit = [entry.name for entry in entries if capability in entry.capabilities]
        dice.shuffle(fit)
        if fit:
            yield _LIST.format(
                when=f'{{mla: {mla}, sparse: {sparse}, capability: "{capability}"}}',
                order=", ".join(fit),
                reason=f"As drawn for {kind} layers on {capability}.",
            )


def write(folder: Path, count: int, entries: int = 40) -> list[Path]:
    """Writes so many manifests into a folder."""
    files = [folder / f"drawn{number:03}.yaml" for number in range(count)]
    for number, file in enumerate(files):
        file.write_text(manifest(number, entries), "utf-8")
    return files
