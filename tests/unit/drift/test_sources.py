"""Wheels and folders, good and hostile."""

from __future__ import annotations

import lzma
import stat
import struct
import time
import zipfile
from pathlib import Path

import pytest

from selector.drift import sources
from selector.drift.modules import Modules
from selector.drift.sources import SourceError, open_source

from .conftest import write_package, write_wheel

FILES = {"engine/code.py": "N = 1\n", "engine/deep/er.py": "M = 2\n"}


@pytest.mark.parametrize("form", ["wheel", "site-packages", "folder"])
def test_the_same_modules_are_read_from_every_form(tmp_path: Path, form: str) -> None:
    if form == "wheel":
        place = write_wheel(tmp_path / "engine-1.2.3-py3-none-any.whl", FILES)
    else:
        write_package(tmp_path, FILES)
        (tmp_path / "engine-1.2.3.dist-info").mkdir()
        place = tmp_path if form == "site-packages" else tmp_path / "engine"
    source = open_source(place, "engine")
    assert source.version == "1.2.3"
    assert source.read("engine.deep.er").data == b"M = 2\n"
    assert source.read("engine.deep").is_package
    assert source.has("engine.deep")
    assert not source.has("engine.nothing")
    assert source.read("engine.nothing") is None
    assert source.findings == []


def test_a_source_that_cannot_be_read_at_all_is_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.whl"
    broken.write_bytes(b"PK\x03\x04 no zip")
    empty = tmp_path / "empty"
    empty.mkdir()
    other = write_wheel(tmp_path / "other.whl", {"other/code.py": ""})
    for place in (broken, empty, other, tmp_path / "nothing.whl"):
        with pytest.raises(SourceError) as caught:
            open_source(place, "engine")
        assert str(caught.value).startswith(f"{place}: ")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["../evil.py", "/etc/evil.py", "engine/../../evil.py", "C:/evil.py", "engine\\evil.py",
             "engine//evil.py", "./engine/evil.py", "engine/new\nline.py", "x" * 600 + ".py"]
)  # fmt: skip
def test_a_name_that_leads_out_is_a_finding_and_is_never_read(tmp_path: Path, name: str) -> None:
    place = write_wheel(tmp_path / "w.whl", FILES)
    with zipfile.ZipFile(place, "a") as wheel:
        wheel.writestr(name, "EVIL = 1\n")
    source = open_source(place, "engine")
    assert [finding.code for finding in source.findings] == ["DRF102"]
    assert "\n" not in str(source.findings[0])
    assert source.read("engine.code") is not None
    assert not source.has("engine.evil")


def test_names_that_are_there_twice_and_links_are_findings(tmp_path: Path) -> None:
    place = write_wheel(tmp_path / "w.whl", FILES)
    with zipfile.ZipFile(place, "a") as wheel:
        with pytest.warns(UserWarning, match="Duplicate"):
            wheel.writestr("engine/code.py", "N = 2\n")
        link = zipfile.ZipInfo("engine/link.py")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        wheel.writestr(link, "/etc/passwd")
    source = open_source(place, "engine")
    assert [finding.code for finding in source.findings] == ["DRF102", "DRF102"]
    assert source.read("engine.code").data == b"N = 2\n"
    assert source.read("engine.link") is None


def test_many_bad_names_are_counted(tmp_path: Path) -> None:
    place = write_wheel(tmp_path / "w.whl", FILES)
    with zipfile.ZipFile(place, "a") as wheel:
        for number in range(50):
            wheel.writestr(f"../{number}.py", "")
    findings = open_source(place, "engine").findings
    assert len(findings) == sources.NAMES_SHOWN + 1
    assert findings[-1].message == "30 more names are refused"


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    place = write_wheel(tmp_path / "w.whl", {**FILES, "engine/big.py": "#" * (5 * 2**20)})
    source = open_source(place, "engine")
    assert source.read("engine.big") is None
    assert source.read("engine.big") is None
    assert [str(finding) for finding in source.findings] == [
        "engine/big.py:1:1: DRF103 5,242,880 bytes; at most 4,194,304 are read"
    ]


def test_a_size_that_lies_does_not_help(tmp_path: Path) -> None:
    place = write_wheel(tmp_path / "w.whl", {**FILES, "engine/big.py": "#" * (64 * 2**20)})
    data = place.read_bytes()
    real = struct.pack("<I", 64 * 2**20)
    assert real in data
    place.write_bytes(data.replace(real, struct.pack("<I", 100)))
    source = open_source(place, "engine")
    started = time.perf_counter()
    file = source.read("engine.big")
    assert time.perf_counter() - started < 2
    assert file is None or len(file.data) <= sources.FILE_BYTES
    assert source.read("engine.code") is not None


def test_all_files_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "READ_BYTES", 8)
    source = open_source(write_package(tmp_path, FILES), "engine")
    assert source.read("engine.code") is not None
    assert source.read("engine.deep.er") is None
    assert source.findings[0].code == "DRF103"


def test_a_wheel_with_too_many_entries_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "FILES", 3)
    with pytest.raises(SourceError, match="entries; at most 3"):
        open_source(write_wheel(tmp_path / "w.whl", FILES), "engine")


def test_a_broken_entry_is_a_finding_and_the_rest_is_read(tmp_path: Path) -> None:
    place = write_wheel(tmp_path / "w.whl", FILES)
    data = bytearray(place.read_bytes())
    at = data.index(b"engine/code.py") + len("engine/code.py")
    data[at : at + 4] = b"\xff\xff\xff\xff"
    place.write_bytes(bytes(data))
    source = open_source(place, "engine")
    assert source.read("engine.code") is None
    assert [finding.code for finding in source.findings] == ["DRF101"]
    assert source.read("engine.deep.er") is not None


def test_a_link_out_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("N = 1\n")
    root = write_package(tmp_path / "root", FILES)
    (root / "engine/link.py").symlink_to(tmp_path / "secret.py")
    source = open_source(root, "engine")
    assert source.read("engine.link") is None
    assert [finding.code for finding in source.findings] == ["DRF102"]


@pytest.mark.parametrize("name", ["engine...code", "engine/../code", "engine.co de", "..", ""])
def test_names_that_are_no_modules_are_not_there(tmp_path: Path, name: str) -> None:
    for source in (
        open_source(write_package(tmp_path / "p", FILES), "engine"),
        open_source(write_wheel(tmp_path / "w.whl", FILES), "engine"),
    ):
        assert source.read(name) is None
        assert Modules(source).get(name) is None


@pytest.mark.parametrize("form", ["wheel", "folder"])
def test_modules_are_listed_and_those_that_mention_a_word_are_parsed(
    tmp_path: Path, form: str
) -> None:
    files = {
        "engine/a.py": "SOUGHT = 1\n",
        "engine/sub/b.py": "x = SOUGHT\n",
        "engine/sub/c.py": "y = (\n",  # is not parsed, so it is no finding
        "engine/no-module.py": "SOUGHT\n",
        "engine-1.data/d.py": "SOUGHT\n",
    }
    path = write_wheel(tmp_path / "w.whl", files) if form == "wheel" else tmp_path / "folder"
    if form == "folder":
        write_package(path, files)
        (path / "engine" / "link").symlink_to(tmp_path, target_is_directory=True)
    source = open_source(path, "engine")
    packages = ("engine", "engine.a", "engine.sub", "engine.sub.b", "engine.sub.c")
    assert source.names() == packages
    modules = Modules(source)
    assert [one.name for one in modules.mentioning(("SOUGHT", "("), ("engine.a.",))] == ["engine.a"]
    assert [one.name for one in modules.mentioning(("SOUGHT",))] == ["engine.a", "engine.sub.b"]
    assert modules.findings == []
    assert [one.name for one in modules.mentioning(("(",))] == ["engine.a", "engine.sub.b"]
    assert [one.code for one in modules.findings] == ["DRF104"]


@pytest.mark.parametrize("error", [lzma.LZMAError("Corrupt"), MemoryError(), ValueError("no")])
def test_what_a_damaged_entry_raises_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    source = open_source(write_wheel(tmp_path / "w.whl", FILES), "engine")

    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr(zipfile.ZipExtFile, "read", fail)
    assert source.read("engine.code") is None
    assert [finding.code for finding in source.findings] == ["DRF101"]
    assert str(error) in source.findings[0].message
