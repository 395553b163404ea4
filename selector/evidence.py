"""Evidence: what was run of a manifest's claims, where and when, as ``attnsel certify`` records it.

Evidence lies in a folder ``evidence`` beside the manifest, one JSON file a run. An entry names runs
by their ids, in ``verified_on``. A record says for every entry the digest of what it claimed then:
where the entry says something else today, the evidence is about another claim.

Reading is bounded, and a file that is no evidence says so in one line; what it records is shown and
compared, never acted on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping as MappingType
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from selector.errors import AttnselError
from selector.schema import check
from selector.values import Device, ManifestRef, Position

if TYPE_CHECKING:
    from pathlib import Path

    from selector.manifest import Entry

__all__ = [
    "FOLDER",
    "NOT_RUN",
    "NO_TIME",
    "ClaimRecord",
    "Evidence",
    "EvidenceError",
    "entry_digest",
    "evidence_id",
    "find_evidence",
    "read_evidence",
]

FOLDER = "evidence"
"""The folder beside a manifest where its evidence lies."""

NO_TIME = "no time left"
"""Why a claim that has cases was not run."""

NOT_RUN = "not run"
"""Why a claim has no result where a recorded run is judged anew."""

_MOST_BYTES, _MOST_FILES = 8_000_000, 200

_DECIDES_NOTHING = frozenset(
    {
        *("source", "sources", "description", "reason", "library", "rationale", "evidence"),
        *("revisit_when", "claimed", "verified_on", "requires", "pinned"),
    }
)
"""What an entry says that changes no claim about its kernel."""


class EvidenceError(AttnselError, ValueError):
    """A file is no evidence, or too large to be. One line says why."""

    code = "EVIDENCE"


class ClaimRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was run of one line of a manifest.

    Attributes:
        backend: the entry's name.
        phase: ``prefill`` or ``decode``.
        field: the field varied, or the constraint's code.
        line: of the claim, in the manifest as it was then.
        column: of the claim.
        accepts: whether the entry accepted these values.
        judgement: what the runs say of the claim.
        values: the values tried, in words.
        cases: how many runs.
        error: the largest relative error, where there is an output.
        tolerance: the error that was allowed.
        message: the first refusal or fault.
        batch: the shapes of the run with that error or message, of the base and of what is not as
            claimed.
    """

    backend: str
    phase: str
    field: str
    line: int
    column: int
    accepts: bool
    judgement: str
    values: tuple[str, ...]
    cases: int
    error: float | None = None
    tolerance: float | None = None
    message: str = ""
    batch: dict[str, Any] | None = None


class Evidence(msgspec.Struct, frozen=True):
    """One run of ``attnsel certify``.

    Attributes:
        id: what an entry's ``verified_on`` calls it.
        date: the day, ISO 8601.
        manifest: whose claims, with the digest of its meaning then.
        device: what they ran on.
        facts: versions there; ``None``: not installed.
        entries: entry → the digest of what it claimed.
        claims: what was run.
        file: where the record lies.
    """

    id: str
    date: str
    manifest: ManifestRef
    device: Device
    facts: dict[str, str | bool | None]
    entries: dict[str, str]
    claims: tuple[ClaimRecord, ...]
    file: str = ""

    def of(self, backend: str) -> tuple[ClaimRecord, ...]:
        """What was run of one entry."""
        return tuple(claim for claim in self.claims if claim.backend == backend)


def evidence_id(device: Device, date: str, digest: str) -> str:
    """What an entry's ``verified_on`` calls a run: ``9.0-2026-11-30-0a1b2c3d``."""
    return f"{device.capability or device.platform}-{date[:10]}-{digest[:8]}"


def read_evidence(path: Path) -> Evidence:
    """The evidence in a file.

    Raises:
        EvidenceError: it is none, or larger than evidence is.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise EvidenceError(f"{path}: more than {_MOST_BYTES:,} bytes, which no evidence has")
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise EvidenceError(f"{path}: no JSON: {next(iter(str(error).splitlines()), '')}") from None
    fault = next(iter(check(said, "evidence")), None)
    if fault is not None:
        where = ".".join(str(part) for part in fault.path) or "the top"
        raise EvidenceError(f"{path}: no evidence: {fault.message} (at {where})")
    return msgspec.convert({**said, "file": str(path)}, Evidence)


def find_evidence(manifest: str) -> dict[str, Evidence] | None:
    """The evidence beside a manifest, by id; files that are none are passed over.

    Args:
        manifest: the manifest's file.

    Returns:
        ``None`` where the manifest is no file, or has no folder of evidence beside it.
    """
    from pathlib import Path

    folder = Path(manifest).parent / FOLDER
    if not folder.is_dir() or not Path(manifest).is_file():
        return None
    found: dict[str, Evidence] = {}
    for path in sorted(folder.glob("*.json"))[:_MOST_FILES]:
        try:
            one = read_evidence(path)
        except (AttnselError, OSError):
            continue
        found[one.id] = one
    return found


def entry_digest(entry: Entry) -> str:
    """SHA-256, in short, of what an entry claims of its kernel; words and sources do not count."""
    text = json.dumps(_plain(entry), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """A value as JSON, without positions and words, the same on every day."""
    if isinstance(value, Position):
        return None
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, msgspec.Struct):
        kept = (n for n in value.__struct_fields__ if n not in _DECIDES_NOTHING)
        return {name: _plain(getattr(value, name)) for name in kept}
    if isinstance(value, MappingType):
        return {str(_plain(name)): _plain(one) for name, one in value.items()}
    if isinstance(value, frozenset | set):
        return sorted((_plain(one) for one in value), key=repr)
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value
