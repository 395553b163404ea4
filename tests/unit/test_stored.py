"""What was read once is read from the cache, and never anything else."""

from __future__ import annotations

import os
import time
from pathlib import Path
from zlib import crc32

import pytest

from selector import Layer, ManifestError, Selector, loading
from selector.document import read_text
from selector.loading import load, loads, read
from selector.manifest import Manifest
from selector.resources import manifest_path, resource
from selector.stored import fetch, is_wanted, keep, key_of

SHIPPED = [resource("capabilities.yaml"), *sorted(resource("manifests").glob("*.yaml"))]


def whole(manifest: Manifest) -> list[object]:
    """Everything of a manifest, in a form that compares."""
    words = manifest.vocabulary.fields
    fields = (name for name in Manifest.__struct_fields__ if name != "vocabulary")
    return [words, *(getattr(manifest, name) for name in fields)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNSEL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the texts that are read as YAML."""
    seen: list[str] = []

    def counted(data: bytes, name: str) -> object:
        seen.append(name)
        return read_text(data, name)

    monkeypatch.setattr(loading, "read_text", counted)
    return seen


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_what_is_kept_is_what_was_read(path: Path, folder: Path) -> None:
    first, second = load(path), load(path)
    assert len(list(folder.iterdir())) == 1
    assert whole(first) == whole(second)
    manifest, _ = read(read_text(path.read_bytes(), str(path)))
    assert manifest is not None
    assert whole(manifest) == whole(second)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_what_phases_state_alike_is_held_once(path: Path, folder: Path) -> None:
    """An entry that accepts the same in both phases is judged once, kept or not."""

    def alike(manifest: Manifest) -> list[str]:
        return [
            entry.name
            for entry in manifest.entries.values()
            if len(specs := [*entry.phases.values()]) == 2 and specs[0].says_as_much_as(specs[1])
        ]

    first, second = load(path), load(path)
    assert alike(first) == alike(second)


def test_it_is_read_once(folder: Path, readings: list[str]) -> None:
    path = manifest_path("vllm-0.33.0")
    for _ in range(3):
        load(path)
    assert readings == [str(path)]


def test_a_changed_byte_is_read_anew(tmp_path: Path, folder: Path, readings: list[str]) -> None:
    path = tmp_path / "m.yaml"
    text = resource("capabilities.yaml").read_text()
    path.write_text(text)
    before = load(path)
    path.write_text(text.replace("dtype: bfloat16", "dtype: bfloat16 ", 1) + "\n# more\n")
    again = load(path)
    assert len(readings) == 2
    assert before.ref.digest == again.ref.digest  # the meaning is the same
    path.write_text(
        text.replace("rationale:", "rationale: Really.", 1).replace("Really.", "Ah.", 1)
    )


def test_another_name_is_read_anew(tmp_path: Path, folder: Path) -> None:
    """Findings and answers name the file as the asker does."""
    data = resource("capabilities.yaml").read_bytes()
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_bytes(data)
        manifest = load(tmp_path / name)
        assert {e.position.file for e in manifest.entries.values()} == {str(tmp_path / name)}


def test_overlays_count(tmp_path: Path, folder: Path) -> None:
    overlay = tmp_path / "o.yaml"
    overlay.write_text(
        "attnsel: 1\noverlay: mine\ndeny:\n  - backend: torch_sdpa_math\n    reason: Slow.\n"
    )
    path = resource("capabilities.yaml")
    assert [d.backend for d in load(path, [overlay]).deny] == ["torch_sdpa_math"]
    assert load(path).deny == ()
    assert [d.backend for d in load(path, [overlay]).deny] == ["torch_sdpa_math"]


def test_errors_are_said_every_time(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("attnsel: 1\n")
    for _ in range(2):
        with pytest.raises(ManifestError):
            load(path)
    assert not folder.exists()


@pytest.mark.parametrize("left", [0, 1, 1000])
def test_what_is_not_whole_is_read_anew(left: int, folder: Path) -> None:
    path = resource("capabilities.yaml")
    first = load(path)
    (kept,) = folder.iterdir()
    whole_data = kept.read_bytes()
    kept.write_bytes(whole_data[:left])
    assert whole(load(path)) == whole(first)
    assert kept.read_bytes() == whole_data


@pytest.mark.parametrize("place", [0, 5, 5_000, -1])
def test_one_changed_bit_is_read_anew(place: int, folder: Path) -> None:
    path = resource("capabilities.yaml")
    first = load(path)
    (kept,) = folder.iterdir()
    data = bytearray(whole_data := kept.read_bytes())
    data[place] ^= 1
    kept.write_bytes(data)
    assert whole(load(path)) == whole(first)
    assert kept.read_bytes() == whole_data


def test_what_is_nested_without_end_is_read_anew(folder: Path) -> None:
    path = resource("capabilities.yaml")
    first = load(path)
    (kept,) = folder.iterdir()
    data = b"\x81\xa1a" * 50_000
    kept.write_bytes(crc32(data).to_bytes(4, "big") + data)
    assert whole(load(path)) == whole(first)


def test_nowhere_to_keep_it_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for place in ("", str(tmp_path / "file")):
        monkeypatch.setenv("ATTNSEL_CACHE_DIR", place)
        load(resource("capabilities.yaml"))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_it_is_known_whether_it_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = loads(resource("capabilities.yaml").read_text())
    (tmp_path / "file").write_text("")
    places = {"": False, "/proc/nope": False, "file": False, "file/below": False, "good": True}
    for place, is_kept in places.items():
        monkeypatch.setenv("ATTNSEL_CACHE_DIR", place and str(tmp_path / place))
        assert keep("k", manifest) is is_kept
        assert (fetch("k", Manifest) is not None) is is_kept
        assert is_wanted() is bool(place)
    monkeypatch.delenv("ATTNSEL_CACHE_DIR")
    assert is_wanted()


def test_the_folder_is_the_users_own_and_small(folder: Path) -> None:
    manifest = loads(resource("capabilities.yaml").read_text())
    for number in range(70):
        keep(f"{number:064}", manifest)
    assert len(list(folder.iterdir())) == 64
    assert folder.stat().st_mode & 0o077 == 0
    assert fetch(f"{69:064}", Manifest) is not None


def test_what_a_kill_left_unfinished_is_removed_after_an_hour(folder: Path) -> None:
    folder.mkdir()
    begun, left = folder / "k.1.2.unfinished", folder / "k.3.4.unfinished"
    for file, age_s in ((begun, 3000), (left, 4000)):
        file.write_bytes(b"half")
        os.utime(file, (time.time() - age_s, time.time() - age_s))
    keep("k", loads(resource("capabilities.yaml").read_text()))
    assert {file.name for file in folder.iterdir()} == {"k.manifest", begun.name}


def test_somebody_elses_file_is_not_believed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = loads(resource("capabilities.yaml").read_text())
    keep("k", manifest)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert fetch("k", Manifest) is None


def test_names_and_contents_cannot_be_mistaken_for_each_other() -> None:
    keys = {key_of(s) for s in ([("a", b"b")], [("ab", b"")], [("a", b""), ("b", b"")], [])}
    assert len(keys) == 4


def test_answers_of_a_kept_manifest_are_the_same(folder: Path) -> None:
    layer = Layer.of(head_size=128, num_heads=32, num_kv_heads=8, dtype="bfloat16")
    answers = [Selector.load("vllm-0.33.0").bind("10.0", layer).resolve(5, 500) for _ in range(2)]
    assert answers[0] == answers[1]
    claims = [Selector.load("vllm-0.33.0", as_claimed=True).manifest.ref for _ in range(2)]
    assert claims[0] == claims[1]
