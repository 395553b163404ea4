"""Evidence beside a manifest: what is read, what is refused, and what it says of an entry."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from selector import Selector
from selector.evidence import (
    EvidenceError,
    entry_digest,
    evidence_id,
    find_evidence,
    read_evidence,
)
from selector.manifest import Entry
from selector.report.text import paint
from selector.report.verified import verified_json, verified_lines
from selector.values import Device

MANIFEST = (
    Path(__file__).parent.parent / "manifests" / "good" / "cap113-same-claims-and-version.yaml"
)
RUN = MANIFEST.parent / "evidence" / "2026-11-22.json"


def entry_of(old: str = "", new: str = "") -> Entry:
    text = MANIFEST.read_text("utf-8")
    assert old in text
    return Selector.loads(text.replace(old, new, 1)).manifest.entries["paged"]


def test_evidence_is_found_beside_its_manifest() -> None:
    found = find_evidence(str(MANIFEST))
    assert found is not None
    run = found["9.0-2026-11-22-0a1b2c3d"]
    assert run.device == Device("cuda", "9.0", "H200")
    assert run.entries == {"paged": entry_digest(entry_of())}
    assert [claim.values for claim in run.of("paged")] == [("64", "128")]
    assert run.of("other") == ()


def test_no_folder_and_no_file_is_no_evidence(tmp_path: Path) -> None:
    assert find_evidence(str(tmp_path / "m.yaml")) is None
    (tmp_path / "evidence").mkdir()
    assert find_evidence(str(tmp_path / "m.yaml")) is None  # a text that came from elsewhere
    (tmp_path / "m.yaml").write_text("", "utf-8")
    assert find_evidence(str(tmp_path / "m.yaml")) == {}
    (tmp_path / "evidence" / "broken.json").write_text("{", "utf-8")
    (tmp_path / "evidence" / "own.json").write_bytes(RUN.read_bytes())
    assert list(find_evidence(str(tmp_path / "m.yaml")) or ()) == ["9.0-2026-11-22-0a1b2c3d"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda said: said.pop("device"), "device"),
        (lambda said: said["claims"][0].update(judgement="fine"), "claims.0.judgement"),
        (lambda said: said.update(command="rm -rf"), "command"),
    ],
)
def test_what_is_no_evidence_says_where(tmp_path: Path, change: Any, why: str) -> None:
    said = json.loads(RUN.read_text("utf-8"))
    change(said)
    path = tmp_path / "e.json"
    path.write_text(json.dumps(said), "utf-8")
    with pytest.raises(EvidenceError, match=why) as caught:
        read_evidence(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"{", b"[" * 100_000, b" " * 8_000_001, b"\xff"])
def test_hostile_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "e.json"
    path.write_bytes(data)
    with pytest.raises(EvidenceError):
        read_evidence(path)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("source: https://example.org/paged", "source: https://example.org/elsewhere", True),
        ('">=0.7.4"', '">=0.7.5"', True),  # a version is another question than a claim
        ("attnsel: 1\n", "# moved\nattnsel: 1\n", True),
        ("head_size: [64, 128]", "head_size: [128, 64]", True),
        ("head_size: [64, 128]", "head_size: [64, 128, 256]", False),
        ("phases: {prefill: {}, decode: {}}", "phases: {decode: {}}", False),
        ("decode_threshold: 1", "decode_threshold: 2", False),
    ],
)
def test_the_digest_is_that_of_the_claims(old: str, new: str, same: bool) -> None:
    assert (entry_digest(entry_of(old, new)) == entry_digest(entry_of())) is same


def test_an_id_says_where_and_when() -> None:
    assert evidence_id(Device("cpu"), "2026-11-30", "0a1b2c3d4e") == "cpu-2026-11-30-0a1b2c3d"
    assert evidence_id(Device("cuda", "9.0"), "2026-11-30T10:00", "0a1b2c3d4e").startswith("9.0-20")


def test_an_entry_is_shown_with_the_values_that_were_run() -> None:
    found = find_evidence(str(MANIFEST)) or {}
    entry = msgspec.structs.replace(entry_of(), library="flashinfer-python")
    (run,) = verified_json(entry, found)
    assert (run["version"], run["cases"], run["unchanged"]) == ("0.7.4", 2, True)
    out = paint(verified_lines(entry, found))
    assert "verified on H200 (9.0), flashinfer-python 0.7.4, 2026-11-22" in out
    assert " ".join(out.split("head_size")[1].split()) == "right 64, 128 prefill"


def test_a_change_since_is_shown() -> None:
    found = find_evidence(str(MANIFEST)) or {}
    assert "something else since" not in paint(verified_lines(entry_of(), found))
    changed = entry_of("head_size: [64, 128]", "head_size: [64]")
    assert "the entry claims something else since" in paint(verified_lines(changed, found))
