"""The support matrix: which entry could serve which architecture, and what plain GQA gets there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import msgspec

from selector.binding import Selector
from selector.changes.case import USABLE, Inquiry, candidate_of, choice_of, verdict_of
from selector.devices import architectures, known_capabilities
from selector.domains import Value
from selector.errors import AttnselError
from selector.report.data import to_json
from selector.report.text import BLANK, Line, Part, faint, good, grid, line, markdown_table, strong
from selector.report.wording import Places, conditions_words, manifest_words
from selector.values import (
    Choice,
    Condition,
    Device,
    Facts,
    Layer,
    LayerGroup,
    Model,
    Outcome,
    Phase,
    Resolution,
    Verdict,
)

__all__ = [
    "Cell",
    "Gets",
    "Matrix",
    "Row",
    "Support",
    "layer_name",
    "matrix_json",
    "matrix_lines",
    "support_matrix",
]

_LEFT_OPEN = frozenset({"kv_cache_dtype", "block_size"})
"""Settings that an ordinary layer leaves open, and that nobody picks a GPU by."""

_REQUEST = frozenset({"query_len", "seq_len", "context_len", "has_context", "num_prefills"})

_GQA: dict[str, Value] = {
    "head_size": 128,
    "v_head_size": 128,
    "dtype": "bfloat16",
    "attn_type": "decoder",
    "num_heads": 32,
    "num_kv_heads": 8,
}
_MLA: dict[str, Value] = {
    "mla": True,
    "dtype": "bfloat16",
    "attn_type": "decoder",
    "num_heads": 128,
    "num_kv_heads": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
_ORDINARY: dict[tuple[bool, bool], dict[str, Value]] = {
    (False, False): _GQA,
    (False, True): {**_GQA, "sparse": True},
    (True, False): _MLA,
    (True, True): {**_MLA, "sparse": True, "index_topk": 2048, "dense_prefill": True},
}
"""A layer of each kind, (MLA, sparse): the sizes of Llama 3 and DeepSeek V3."""


class Support(StrEnum):
    """Whether an entry serves a phase on an architecture."""

    YES = "yes"
    SOME = "some"
    NO = "no"


class Cell(msgspec.Struct, frozen=True):
    """Support for each phase; software it requires is taken to be installed."""

    prefill: Support
    decode: Support


class Row(msgspec.Struct, frozen=True):
    """One entry: architecture → support."""

    backend: str
    cells: dict[str, Cell]


class Gets(msgspec.Struct, frozen=True):
    """What a layer gets on an architecture, with everything unknown taken as such.

    Attributes:
        arch: the architecture.
        family: what its products are called together.
        prefill: the choice for prefill.
        decode: the choice for decode.
        prefill_else: the next choice that asks for nothing that the first asks for.
        decode_else: the same, for decode.
    """

    arch: str
    family: str
    prefill: Choice
    decode: Choice
    prefill_else: str | None
    decode_else: str | None


class Matrix(msgspec.Struct, frozen=True):
    """Entries by architectures, and what a layer gets on each.

    Attributes:
        judged: the layer that rows are judged for; ``None``: an ordinary one of each entry's kind.
        archs: the columns.
        rows: one for each entry.
        gets: one for each column; for plain GQA when ``judged`` is ``None``.
    """

    judged: str | None
    archs: tuple[str, ...]
    rows: tuple[Row, ...]
    gets: tuple[Gets, ...]


def support_matrix(
    selector: Selector, layer: Layer | None = None, facts: Facts | None = None, name: str = ""
) -> Matrix:
    """Every entry of the manifest on every known architecture, and on CPUs.

    Args:
        selector: gives the answers.
        layer: what to judge for; ``None``: an ordinary layer of each entry's own kind.
        facts: what is installed; unknown where ``None``.
        name: what ``layer`` is called.
    """
    judge = _Judge(selector, layer, facts or Facts())
    archs = (*known_capabilities(), "cpu")
    rows = tuple(
        Row(entry, {arch: judge.cell(entry, arch) for arch in archs})
        for entry in selector.manifest.entries
    )
    gets = tuple(judge.gets(arch) for arch in archs)
    return Matrix(name if layer is not None else None, archs, rows, gets)


class _Judge:
    """Asks the resolver once for each layer and architecture."""

    def __init__(self, selector: Selector, layer: Layer | None, facts: Facts) -> None:
        self.selector = selector
        self.layer = layer
        self.facts = facts
        self.verdicts: dict[tuple[str, tuple[bool, bool, bool]], dict[str, _Pair]] = {}

    def cell(self, name: str, arch: str) -> Cell:
        """Support by one entry on one architecture."""
        if self.layer is not None:
            given = self._judged(arch, (False, False, False)).get(name, _REFUSED)
            return Cell(*(self._support(v, None) for v in given))
        entry = self.selector.manifest.entries[name]
        ordinary = self._judged(arch, (entry.mla, entry.sparse, False)).get(name, _REFUSED)
        any_such = self._judged(arch, (entry.mla, entry.sparse, True)).get(name, _REFUSED)
        pairs = zip(ordinary, any_such, strict=True)
        return Cell(*(self._support(mine, any_) for mine, any_ in pairs))

    def _judged(self, arch: str, kind: tuple[bool, bool, bool]) -> dict[str, _Pair]:
        key = (arch, kind)
        if key not in self.verdicts:
            mla, sparse, open_ = kind
            layer = self.layer or _layer(mla, sparse, open_)
            try:
                answer = Inquiry(_device(arch), layer, self.facts).resolve(self.selector)
                found = {
                    c.backend: (verdict_of(c, Phase.PREFILL), verdict_of(c, Phase.DECODE))
                    for c in answer.candidates
                }
            except AttnselError:  # no such layer on such a device
                found = {}
            self.verdicts[key] = found
        return self.verdicts[key]

    def _support(self, verdict: Verdict, any_such: Verdict | None) -> Support:
        """Yes for this layer; some when that depends on it, or another of its kind would do."""
        if verdict.outcome in USABLE:
            needs_more = any(self._is_of_the_layer(c) for c in verdict.conditions)
            return Support.SOME if needs_more else Support.YES
        possible = any_such is not None and any_such.outcome in USABLE
        return Support.SOME if possible else Support.NO

    def _is_of_the_layer(self, condition: Condition) -> bool:
        open_ = _REQUEST | _LEFT_OPEN if self.layer is None else _REQUEST
        return condition.field not in self.selector.manifest.facts and condition.field not in open_

    def gets(self, arch: str) -> Gets:
        """What the layer is given on one architecture."""
        layer = self.layer or Layer.of(**_GQA, kv_cache_dtype="auto")
        answer = Inquiry(_device(arch), layer, self.facts).resolve(self.selector)
        rest = (_fallback(answer, phase) for phase in Phase)
        return Gets(arch, _family(arch), answer.prefill, answer.decode, *rest)


_Pair = tuple[Verdict, Verdict]
_REFUSED = (Verdict(Outcome.UNSUPPORTED), Verdict(Outcome.UNSUPPORTED))


def _fallback(answer: Resolution, phase: Phase) -> str | None:
    """What is chosen when none of the first choice's conditions can be met."""
    choice = choice_of(answer, phase)
    asked_for = {c.field for c in choice.conditions}
    for name in choice.possible[1:]:
        conditions = verdict_of(candidate_of(answer, name), phase).conditions
        if not asked_for & {c.field for c in conditions}:
            return name
    return None


def _layer(mla: bool, sparse: bool, open_: bool) -> Layer:
    """An ordinary layer of a kind; or, open, one of which only the kind is known."""
    if not open_:
        return Layer.of(**_ORDINARY[mla, sparse])
    return Layer(MappingProxyType({"mla": mla, "sparse": sparse, "attn_type": "decoder"}))


def layer_name(model: Model | None, group: LayerGroup | None) -> str:
    """What a matrix calls the layer it is judged for."""
    return f"{model.name}, {group.name} layers" if model and group else "this layer"


def _device(arch: str) -> Device:
    return Device("cpu") if arch == "cpu" else Device("cuda", arch)


def _family(arch: str) -> str:
    row = next((a for a in architectures() if arch in (a["capability"], a["platform"])), None)
    return str(row["family"]) if row and arch != "cpu" else ""


def matrix_json(matrices: Sequence[Matrix], selector: Selector) -> dict[str, Any]:
    """The manifest and one matrix for each layer judged."""
    return {"manifest": to_json(selector.manifest.ref), "matrices": to_json(matrices)}


# -- in words ------------------------------------------------------------------------------------

_MARKS = {
    Phase.PREFILL: {Support.YES: "P", Support.SOME: "p", Support.NO: "·"},
    Phase.DECODE: {Support.YES: "D", Support.SOME: "d", Support.NO: "·"},
}
_LEGEND = (
    "P prefill, D decode: yes, once the software it requires is installed",
    "p, d: only some layers of that kind, or depending on what is not known of this one; ·: never",
)
_JUDGED = (
    "each row judged for an ordinary bfloat16 layer of its own kind: GQA, 32 heads of 128 on 8; "
    "MLA, 128 heads, latent 512 + 64; top-k 2,048; with whichever KV dtype it reads"
)


def _mark(cell: Cell) -> str:
    both = _MARKS[Phase.PREFILL][cell.prefill] + _MARKS[Phase.DECODE][cell.decode]
    return "·" if both == "··" else both


def matrix_lines(
    matrix: Matrix,
    selector: Selector,
    places: Places,
    markdown: bool = False,
    width: int | None = None,
) -> list[Line]:
    """The matrix and, under it, what a layer gets on each architecture.

    A matrix wider than ``width`` characters is cut between architectures, and goes on below.
    """
    what = matrix.judged or "plain GQA, bfloat16, head size 128"
    judged = f"judged for {matrix.judged}" if matrix.judged else _JUDGED
    if markdown:
        return [*_markdown(matrix, judged), BLANK, *_gets_markdown(matrix, selector, what)]
    ref = selector.manifest.ref
    lines = [line(strong(ref.name), "    ", faint(manifest_words(ref, places)))]
    for archs in _parts(matrix, width):
        rows: list[list[Part]] = [[faint("backend"), *(faint(arch) for arch in archs)]]
        for row in matrix.rows:
            rows.append([row.backend, *(_colored(row.cells[arch]) for arch in archs)])
        lines += [BLANK, *grid(rows, indent=2, gap=2)]
    lines += [BLANK, *(line("  ", faint(text), hang=4) for text in (*_LEGEND, judged))]
    lines += [BLANK, line(strong(what), " gets")]
    return [*lines, *_gets_lines(matrix, selector)]


def _parts(matrix: Matrix, width: int | None) -> Iterator[tuple[str, ...]]:
    """Yields the architectures that fit beside the names, in as many parts as that takes."""
    start = 2 + max((len(row.backend) for row in matrix.rows), default=0)
    part: tuple[str, ...] = ()
    used = start
    for arch in matrix.archs:
        column = 2 + len(arch)
        if width is not None and part and used + column > width:
            yield part
            part, used = (), start
        part, used = (*part, arch), used + column
    yield part


def _colored(cell: Cell) -> Part:
    mark = _mark(cell)
    return good(mark) if Support.YES in (cell.prefill, cell.decode) else faint(mark)


def _markdown(matrix: Matrix, judged: str) -> list[Line]:
    rows = [[row.backend, *(_mark(row.cells[a]) for a in matrix.archs)] for row in matrix.rows]
    notes = [line(text, "  ") for text in (*_LEGEND, judged)]
    return [*markdown_table(["backend", *matrix.archs], rows), BLANK, *notes]


_GETS_HEAD = ("arch", "family", "prefill", "decode", "if", "else")


def _gets_lines(matrix: Matrix, selector: Selector) -> Iterator[Line]:
    """Yields what each architecture gets, and under it on what that depends."""
    cells = [_gets_cells(gets, selector) for gets in matrix.gets]
    rows: list[list[Part]] = [[faint(title) for title in _GETS_HEAD[:4]]]
    rows += [[*row[:4]] for row in cells]
    indent = 4 + max(len(row[0]) for row in cells)
    shown = iter(grid(rows, indent=2, gap=2))
    yield next(shown)
    for row, (*_, condition, otherwise) in zip(shown, cells, strict=True):
        yield row
        if condition:
            rest = f", else {otherwise}" if otherwise else ""
            yield line(" " * indent, faint(f"if {condition}{rest}"), hang=indent + 3)


def _gets_markdown(matrix: Matrix, selector: Selector, what: str) -> list[Line]:
    rows = [_gets_cells(gets, selector) for gets in matrix.gets]
    return [line(f"{what} gets"), BLANK, *markdown_table(_GETS_HEAD, rows)]


def _gets_cells(gets: Gets, selector: Selector) -> list[str]:
    both = (gets.prefill, gets.decode)
    rest = (gets.prefill_else, gets.decode_else)
    named = [(r or "none") if c.conditions else "" for r, c in zip(rest, both, strict=True)]
    return [
        gets.arch,
        gets.family,
        *(choice.backend or "none" for choice in both),
        _both(*(" and ".join(conditions_words(choice.conditions)) for choice in both)),
        _both(*named),
    ]


def _both(prefill: str, decode: str) -> str:
    """What holds for prefill and what for decode; once, when it is the same."""
    return prefill if prefill == decode else f"{prefill or '–'} | {decode or '–'}"
