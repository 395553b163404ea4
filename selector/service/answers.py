"""Questions of bodies put to a snapshot. What is bound once is kept with the snapshot."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from selector.binding import Bound
from selector.changes.case import Case, Inquiry, rarest_first
from selector.changes.layers import Layers, layers_of
from selector.errors import ValueRefusedError
from selector.fields import close_matches, one_line
from selector.live import Snapshot
from selector.models.reader import read_config
from selector.plan.cells import Cells
from selector.report.data import answer_json, json_text
from selector.service.bodies import Said
from selector.tables.rows import load_preset
from selector.values import Layer, Model, Request

__all__ = ["Asked"]


class Asked:
    """A question but for its lengths, bound to a snapshot.

    Attributes:
        snapshot: answers it.
    """

    def __init__(
        self, snapshot: Snapshot, said: Said, spend: Callable[[int], None] = lambda _: None
    ) -> None:
        """Binds each group of layers.

        Args:
            snapshot: answers it.
            said: what the body says.
            spend: is told how many bytes of text are kept.

        Raises:
            AttnselError: something said is unknown, refused or contradictory.
        """
        self.snapshot = snapshot
        self.as_claimed = said.as_claimed
        self._spend = spend
        self._cells: list[Cells] | None = None
        self._texts: dict[object, _Text] = {}
        self.selector = snapshot.claimed if said.as_claimed else snapshot.selector
        manifest = self.selector.manifest
        device, facts, policy = said.device_meant(), said.facts_known(), said.policy_said()
        _refuse_misspelt(said.facts, manifest.facts)
        fields = Layer.read(said.layer, manifest.vocabulary).fields
        self._groups: list[tuple[Inquiry, Bound, Layers]] = []
        for group in layers_of(_model_of(said), fields):
            inquiry = Inquiry(device, group[2], facts, policy, closed_world=said.closed_world)
            self._groups.append((inquiry, inquiry.bind(self.selector), group))

    def text(self, request: Request) -> bytes:
        """The answer as JSON, as ``attnsel resolve --format json`` prints it.

        Requests in one place have one text but for their lengths: it is written out twice, for two
        of them, and once both are known to agree no more.

        Raises:
            UnknownBackendError: the policy names a backend that is not in the manifest.
        """
        lengths = (request.query_len, request.seq_len, request.speculative_tokens)
        places = [cells.place(*lengths) for cells in self._cells_of_groups()]
        if None in places:
            return self._written(request)
        place = tuple(places)
        kept = self._texts.get(place)
        if kept is None:
            text = self._written(request)
            self._texts[place] = _Text(request, text)
            self._spend(len(text))
            return text
        return kept.of(request, self._written)

    def _cells_of_groups(self) -> list[Cells]:
        if self._cells is None:
            self._cells = [Cells(bound) for _, bound, _ in self._groups]
        return self._cells

    def _written(self, request: Request) -> bytes:
        return json_text(answer_json(self.cases(request))).encode("utf-8")

    def cases(self, request: Request) -> list[Case]:
        """One case for each group of layers, the rarest first.

        Raises:
            UnknownBackendError: the policy names a backend that is not in the manifest.
        """
        return rarest_first([self._case(*group, request) for group in self._groups])

    def _case(self, inquiry: Inquiry, bound: Bound, group: Layers, request: Request) -> Case:
        model, of, _, shard = group
        asked = msgspec.structs.replace(inquiry, request=request)
        answer = bound.resolve_one(request)
        return Case(asked, answer, model, of, True, shard, self.as_claimed)


_LENGTHS = re.compile(rb'(\n *"request": )\{[^}]*\}')
"""A request as it is shown: at the beginning of a line, where no text can be."""


class _Text:
    """The text of the answers to requests in one place: that of one, or the parts between lengths.

    Lengths that are shown elsewhere too, as a reason, keep it from being taken apart.
    """

    def __init__(self, request: Request, text: bytes) -> None:
        self._request = request
        self._kept: bytes | list[bytes] = text
        self._differs = False

    def of(self, request: Request, write: Callable[[Request], bytes]) -> bytes:
        """The text for a request; ``write`` gives it where it is not known to be the same."""
        kept = self._kept
        if isinstance(kept, list):
            return _joined(kept, request)
        if request == self._request:
            return kept
        text = write(request)
        if not self._differs:
            parts = _LENGTHS.split(kept)
            if (_joined(parts, self._request), _joined(parts, request)) == (kept, text):
                self._kept = parts
            else:
                self._differs = True
        return text


def _joined(parts: list[bytes], request: Request) -> bytes:
    """The parts with a request's lengths between them; every other part is what leads to one."""
    whole = [parts[0]]
    for begin, rest in zip(parts[1::2], parts[2::2], strict=True):
        indent = b"\n" + b" " * (len(begin) - len(begin.lstrip()) - 1)
        shown = msgspec.json.format(msgspec.json.encode(request), indent=2)
        whole += (begin, shown.replace(b"\n", indent), rest)
    return b"".join(whole)


def _model_of(said: Said) -> Model | None:
    """The model: a preset or an object; a path is never read."""
    if said.model is None:
        return None
    return load_preset(said.model) if isinstance(said.model, str) else read_config(said.model)


def _refuse_misspelt(said: Mapping[str, Any], known: Mapping[str, str]) -> None:
    """Refuses a fact that reads like one of the manifest's and is none; others mean nothing to it.

    Raises:
        ValueRefusedError: there is one.
    """
    for name in said:
        near = [] if name in known else close_matches(name[:100], known, 0.85)
        if near:
            raise ValueRefusedError(
                f'no fact is called "{one_line(name)}"; did you mean {near[0]}?'
            )
