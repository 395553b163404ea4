"""Manifests that change under what serves them; every look is made by hand, so nothing waits."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from selector.errors import ManifestError, UnknownManifestError
from selector.live import LiveManifest, LiveManifests, Loader, Watcher
from selector.loading import load_sources
from selector.manifest import Manifest
from selector.stored import packed
from selector.values import Finding

SMALL = (Path(__file__).parent / "cli" / "small.yaml").read_bytes()
OTHER = SMALL.replace(b'version: "1"', b'version: "2"')
BROKEN = SMALL.replace(b"backends:", b"backens:")


def later() -> float:
    """A clock by which no file changed just now."""
    return time.time() + 60


def see(live: LiveManifest) -> None:
    """Looks until a change that is over is seen: once at it, once more that it is over."""
    live.look()
    live.look()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "engine.yaml"
    path.write_bytes(SMALL)
    return path


@pytest.fixture
def told() -> list[tuple[int, bool]]:
    return []


@pytest.fixture
def live(file: Path, told: list[tuple[int, bool]]) -> LiveManifest:
    return LiveManifest(
        "engine",
        [file],
        tell=lambda one: told.append((one.current.generation, one.is_degraded)),
        clock=later,
    )


def version(live: LiveManifest) -> str:
    return live.current.selector.manifest.ref.version


def test_a_change_is_a_new_generation(
    live: LiveManifest, file: Path, told: list[tuple[int, bool]]
) -> None:
    before = live.current
    file.write_bytes(OTHER)
    see(live)
    assert (version(live), live.current.generation) == ("2", 2)
    assert (before.generation, before.sources[0][1]) == (1, SMALL), "a snapshot never changes"
    assert told == [(2, False)]


def test_nothing_is_read_that_did_not_change(live: LiveManifest, file: Path) -> None:
    before = live.current
    see(live)
    file.touch()
    see(live)
    assert live.current is before


def test_comments_are_a_new_generation_of_the_same_digest(live: LiveManifest, file: Path) -> None:
    before = live.current
    file.write_bytes(b"# lines move\n" + SMALL)
    see(live)
    assert (live.current.generation, live.current.digest) == (2, before.digest)


def test_a_broken_file_keeps_the_last_good_one_and_recovers_alone(
    live: LiveManifest, file: Path, told: list[tuple[int, bool]]
) -> None:
    before = live.current
    file.write_bytes(BROKEN)
    see(live)
    assert live.current is before
    assert live.trouble is not None
    assert live.trouble.code == "MANIFEST"
    assert "backens" in str(live.trouble.findings)
    file.write_bytes(SMALL)
    see(live)
    assert live.current is before, "what it held before is no new generation"
    assert live.trouble is None
    assert told == [(1, True), (1, False)]
    assert live.failures == 1


def test_a_broken_file_that_is_mended_is_the_next_generation(
    live: LiveManifest, file: Path
) -> None:
    for data in (BROKEN, SMALL[: len(SMALL) // 2], b"", b"\xff\xfe\0", b"a: [" * 500, OTHER):
        file.write_bytes(data)
        see(live)
    assert (version(live), live.current.generation, live.trouble) == ("2", 2, None)


@pytest.mark.parametrize("cut", range(0, len(SMALL), 97))
def test_half_a_file_never_replaces_a_whole_one_while_it_grows(
    live: LiveManifest, file: Path, cut: int
) -> None:
    """Each look sees another length, so what is there is not read until it stays."""
    file.write_bytes(OTHER[:cut])
    live.look()
    assert (version(live), live.trouble) == ("1", None)
    file.write_bytes(OTHER)
    see(live)
    assert (version(live), live.current.generation) == ("2", 2)


def test_a_file_that_ends_within_a_line_is_given_time(file: Path) -> None:
    """Half a manifest can be one; its writer may only have paused."""
    ahead = [0.5]
    live = LiveManifest("engine", [file], clock=lambda: time.time() + ahead[0])
    half = OTHER[: OTHER.index(b"  - name: fa2") + 5]
    file.write_bytes(half)
    for _ in range(5):
        see(live)
    assert (version(live), live.trouble) == ("1", None)
    file.write_bytes(OTHER)
    see(live)
    assert (version(live), live.current.generation) == ("2", 2)
    file.write_bytes(OTHER.rstrip().replace(b'version: "2"', b'version: "3"'))
    see(live)
    assert version(live) == "2"
    ahead[0] = 60
    see(live)
    assert version(live) == "3", "a file that stays so is meant so"


def test_a_file_that_never_stays_is_read_all_the_same(live: LiveManifest, file: Path) -> None:
    for size in range(30):
        file.write_bytes(OTHER + b"\n" * size)
        live.look()
    assert version(live) == "2"


def test_a_file_that_vanishes_and_comes_back(live: LiveManifest, file: Path) -> None:
    before = live.current
    file.unlink()
    see(live)
    assert live.trouble is not None
    assert (live.current, live.trouble.code) == (before, "UNREADABLE")
    file.write_bytes(BROKEN)
    see(live)
    assert live.trouble is not None
    assert live.trouble.code == "MANIFEST"
    file.unlink()
    see(live)
    file.write_bytes(BROKEN)
    see(live)
    assert live.trouble.code == "MANIFEST", "the same bad bytes are still bad"
    file.write_bytes(OTHER)
    see(live)
    assert (version(live), live.trouble) == ("2", None)


def test_an_editor_that_renames(live: LiveManifest, file: Path) -> None:
    """Written beside and put in place; or the old one moved away first."""
    beside = file.with_name(".engine.yaml.swp")
    beside.write_bytes(OTHER)
    os.replace(beside, file)
    see(live)
    assert version(live) == "2"
    os.replace(file, file.with_name("engine.yaml~"))
    live.look()
    file.write_bytes(SMALL)
    see(live)
    assert (version(live), live.current.generation) == ("1", 3)


def test_a_folder_of_links_that_is_swapped(tmp_path: Path) -> None:
    """As Kubernetes mounts a ConfigMap: file → ..data/file, and ..data → a dated folder."""
    for name, data in (("..2026_1", SMALL), ("..2026_2", OTHER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "engine.yaml").write_bytes(data)
        os.utime(tmp_path / name / "engine.yaml", (1, 1))
    (tmp_path / "..data").symlink_to("..2026_1")
    (tmp_path / "engine.yaml").symlink_to("..data/engine.yaml")
    live = LiveManifest("engine", [tmp_path / "engine.yaml"], clock=later)
    (tmp_path / "..data_tmp").symlink_to("..2026_2")
    os.replace(tmp_path / "..data_tmp", tmp_path / "..data")
    see(live)
    assert (version(live), live.current.generation) == ("2", 2)


def test_a_folder_instead_of_a_file(live: LiveManifest, file: Path) -> None:
    file.unlink()
    file.mkdir()
    see(live)
    assert live.trouble is not None
    assert "is a directory" in live.trouble.message


@pytest.mark.parametrize("clock", [later, time.time], ids=["old", "young"])
def test_a_pipe_instead_of_a_file_is_not_waited_for(file: Path, clock: Callable[[], float]) -> None:
    live = LiveManifest("engine", [file], clock=clock)
    file.unlink()
    os.mkfifo(file)
    looks = threading.Thread(target=see, args=(live,), daemon=True)
    looks.start()
    looks.join(60)
    assert not looks.is_alive()
    assert live.trouble is not None
    assert live.trouble.message == f"{file}: not a regular file"


def test_a_young_file_is_read_again_though_it_looks_the_same(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writes within one tick of the file system's clock leave the same times and size."""
    import selector.live as module

    same = ((1, 2, 3, 4, 5),)
    monkeypatch.setattr(module, "_state_of", lambda _: same)
    clock = [1e-6]
    live = LiveManifest("engine", [file], clock=lambda: clock[0])
    file.write_bytes(OTHER)
    live.look()
    assert version(live) == "2"
    file.write_bytes(SMALL)
    clock[0] = 60.0
    see(live)
    assert version(live) == "2", "an old file that looks the same is not read"


def test_a_broken_file_is_read_once(file: Path) -> None:
    """While it is young it is looked into again and again; it is broken all the same."""
    live, times = LiveManifest("engine", [file]), 0
    real = live.load

    def count(sources: list[tuple[str, bytes]]) -> Manifest:
        nonlocal times
        times += 1
        return real(sources)

    live.load = count
    file.write_bytes(BROKEN)
    for _ in range(5):
        live.reload()
    assert (times, live.failures) == (1, 1)


def test_a_mistake_of_the_reader_is_trouble_too(live: LiveManifest, file: Path) -> None:
    def fail(_: object) -> Manifest:
        raise RecursionError("deep")

    live.load = fail
    file.write_bytes(OTHER)
    see(live)
    assert live.trouble is not None
    assert live.trouble.message == "RecursionError: deep"
    assert live.current.generation == 1


def test_a_good_file_that_could_not_be_read_is_read_again(file: Path) -> None:
    now = time.time() + 60
    live = LiveManifest("engine", [file], clock=lambda: now)

    def fail(_: object) -> Manifest:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    real, live.load = live.load, fail
    file.write_bytes(OTHER)
    see(live)
    assert live.trouble is not None
    assert live.trouble.message == "resource temporarily unavailable"
    live.load = real
    see(live)  # not at once
    assert live.is_degraded
    now += 2
    live.look()
    assert (live.is_degraded, version(live)) == (False, "2")


def test_a_reload_reads_again_what_could_not_be_read(live: LiveManifest, file: Path) -> None:
    def fail(_: object) -> Manifest:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    real, live.load = live.load, fail
    file.write_bytes(OTHER)
    live.reload()
    live.load = real
    live.reload()
    assert version(live) == "2"


def test_trouble_keeps_its_age_while_it_changes(live: LiveManifest, file: Path) -> None:
    file.write_bytes(BROKEN)
    see(live)
    first = live.trouble
    file.write_bytes(BROKEN + b"more: 1\n")
    see(live)
    assert first is not None
    assert live.trouble is not None
    assert (live.trouble.since, live.trouble != first) == (first.since, True)


def test_a_process_that_starts_again_serves_what_it_did(live: LiveManifest, file: Path) -> None:
    file.write_bytes(OTHER)
    see(live)
    for broken in (BROKEN, None):
        file.write_bytes(broken) if broken else file.unlink()
        again = LiveManifest("engine", [file], clock=later)
        assert (version(again), again.is_degraded) == ("2", True)
        file.write_bytes(OTHER)
        see(again)
        assert (again.trouble, again.current.generation) == (None, 1)
    other = file.with_name("other.yaml")
    other.write_bytes(BROKEN)
    with pytest.raises(ManifestError):
        LiveManifest("other", [other])


def test_what_could_not_be_kept_is_kept_as_soon_as_it_can_be(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("no folder")
    monkeypatch.setenv("ATTNSEL_CACHE_DIR", str(tmp_path / "cache"))
    told: list[bool] = []
    live = LiveManifest("engine", [file], tell=lambda one: told.append(one.is_kept), clock=later)
    live.reload()
    assert (live.is_kept, told) == (False, [])
    (tmp_path / "cache").unlink()
    live.reload()
    live.reload()
    assert (live.is_kept, told) == (True, [True])
    file.write_bytes(BROKEN)
    again = LiveManifest("engine", [file], clock=later)
    assert (again.is_kept, again.is_degraded) == (True, True)


def test_an_overlay_that_does_not_fit_says_over_which_manifest(file: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "local.yaml"
    overlay.write_text("attnsel: 1\noverlay: local\ndeny: [{backend: fa2, reason: A bug.}]\n")
    other = tmp_path / "other.yaml"
    other.write_bytes(SMALL.replace(b"fa2", b"fa9"))
    with pytest.raises(ManifestError, match=r"CAP013.*fa2.*, over other;") as raised:
        LiveManifests.load([str(file), str(other)], [str(overlay)])
    assert all(isinstance(one, Finding) for one in raised.value.findings)
    other.write_bytes(BROKEN)
    with pytest.raises(ManifestError) as raised:
        LiveManifests.load([str(other)], [str(overlay)])
    assert "over other" not in str(raised.value)


def test_overlays_are_watched_too(file: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "local.yaml"
    overlay.write_text("attnsel: 1\noverlay: local\ndeny:\n  - {backend: fa2, reason: A bug.}\n")
    live = LiveManifest("engine", [file, overlay], clock=later)
    assert len(live.current.selector.manifest.deny) == 1
    overlay.write_text("attnsel: 1\noverlay: local\n")
    see(live)
    assert live.current.selector.manifest.deny == ()
    overlay.unlink()
    see(live)
    assert live.is_degraded


def test_readers_see_one_snapshot_or_the_next_never_a_mixture(
    live: LiveManifest, file: Path
) -> None:
    texts = {SMALL: "1", OTHER: "2"}
    stop, seen = threading.Event(), set()

    def read() -> None:
        while not stop.is_set():
            now = live.current
            assert texts[now.sources[0][1]] == now.selector.manifest.ref.version
            seen.add(now.generation)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(30):
        file.write_bytes((OTHER, SMALL, BROKEN)[turn % 3])
        live.reload()
    stop.set()
    for reader in readers:
        reader.join()
    assert live.current.generation == 21
    assert seen <= set(range(1, 22))


def test_names(tmp_path: Path, file: Path) -> None:
    live = LiveManifests.load([str(file), "vllm-0.33.0"])
    assert [*live] == ["engine", "vllm-0.33.0"]
    assert live.current(None) is live["engine"].current
    assert live.current("vllm-0.33.0").name == "vllm-0.33.0"
    with pytest.raises(UnknownManifestError, match="did you mean engine"):
        live.current("engin")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "engine.yaml").write_bytes(SMALL)
    with pytest.raises(UnknownManifestError, match="two manifests would be called engine"):
        LiveManifests.load([str(file), str(tmp_path / "b" / "engine.yaml")])
    with pytest.raises(UnknownManifestError, match="no such file"):
        LiveManifests.load([str(tmp_path / "none.yaml")])


def test_a_watcher_looks_by_itself(file: Path) -> None:
    changed = threading.Event()
    live = LiveManifest("engine", [file], tell=lambda _: changed.set())
    watcher = Watcher([live], interval_s=0.001)
    watcher.start()
    file.write_bytes(OTHER)
    assert changed.wait(20)
    watcher.stop()
    assert version(live) == "2"


@pytest.fixture
def loader() -> Iterator[Loader]:
    one = Loader()
    yield one
    one.stop()


def test_a_process_of_its_own_loads_the_same(loader: Loader) -> None:
    sources = [("engine.yaml", SMALL)]
    assert packed(loader.load(sources)) == packed(load_sources(sources))
    with pytest.raises(ManifestError) as here:
        load_sources([("engine.yaml", BROKEN)])
    with pytest.raises(ManifestError) as there:
        loader.load([("engine.yaml", BROKEN)])
    assert there.value.findings == here.value.findings


def test_a_loader_whose_process_was_killed_goes_on(loader: Loader) -> None:
    sources = [("engine.yaml", SMALL)]
    loader.load(sources)
    loader._process.kill()
    assert loader.load(sources).ref.version == "1"


def test_a_bug_of_the_loading_process_is_told_on_one_line(
    live: LiveManifest, file: Path, loader: Loader
) -> None:
    live.load = lambda _: loader.load(None)  # type: ignore[arg-type]
    file.write_bytes(OTHER)
    see(live)
    assert live.trouble is not None
    assert live.trouble.message == "reading ended by a bug: TypeError"
