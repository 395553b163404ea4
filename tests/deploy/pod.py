"""Runs the command of a pod as its node would: its user, paths and volumes, on a read-only root.

Started as root in namespaces of its own (mount, network); prints what it saw as JSON.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_STARTS_WITHIN_S = 60
_UP = 1


def mount(*arguments: object) -> None:
    """Mounts something, in this namespace alone."""
    subprocess.run(["mount", *map(str, arguments)], check=True)


def bring_loopback_up() -> None:
    """Has this namespace reach itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", _UP))  # SIOCSIFFLAGS


def blocked(folder: Path) -> Path | None:
    """The uppermost folder on the way that other users may not enter."""
    way = [*reversed(folder.parents), folder]
    return next((one for one in way if not one.stat().st_mode & 0o001), None)


def open_ways(stage: Path, needed: Iterable[Path]) -> None:
    """Lets every user reach these folders."""
    ways = {folder: blocked(folder) for folder in needed}
    for place, folder in enumerate(ways):
        (stage / str(place)).mkdir()
        mount("--rbind", folder, stage / str(place))
    for wall in {wall for wall in ways.values() if wall is not None}:
        mount("-t", "tmpfs", "-o", "mode=755", "none", wall)
    for place, (folder, wall) in enumerate(ways.items()):
        if wall is not None:
            folder.mkdir(parents=True, exist_ok=True)
            mount("--rbind", stage / str(place), folder)


class ConfigMap:
    """A volume as a kubelet writes it: files are links into a folder that is replaced at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 0

    def write(self, files: dict[str, str]) -> None:
        """Replaces all that it holds."""
        self._number += 1
        data = self.folder / f"..{self._number}"
        data.mkdir()
        for name, text in files.items():
            (data / name).write_text(text)
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        (self.folder / "..data_tmp").symlink_to(data.name)
        (self.folder / "..data_tmp").replace(self.folder / "..data")


class Pod:
    """A container's process.

    Attributes:
        map: the volume that holds its manifest.
        lines: what it has logged.
    """

    def __init__(self, said: dict[str, Any]) -> None:
        self._said = said
        stage = Path(tempfile.mkdtemp(prefix="attnsel-pod-"))
        mount("-t", "tmpfs", "-o", "mode=755", "none", stage)
        open_ways(stage, [Path(one).resolve() for one in said["needed"]])
        for top in ("etc", "var"):
            upper, work = stage / f"{top}-upper", stage / f"{top}-work"
            upper.mkdir()
            work.mkdir()
            layers = f"lowerdir=/{top},upperdir={upper},workdir={work}"
            mount("-t", "overlay", "overlay", "-o", layers, f"/{top}")
        manifests, cache = stage / "manifests", stage / "cache"
        manifests.mkdir()
        cache.mkdir()
        os.chown(cache, 0, said["group"])
        cache.chmod(0o2777)  # as a node makes an emptyDir
        self._bind(manifests, said["manifests"], "ro,bind")
        self._bind(cache, said["cache"], "bind")
        mount("-o", "remount,ro,bind", "/")
        self.map = ConfigMap(manifests)
        self.lines: list[str] = []
        self._log = (stage / "log").open("w+")  # a pipe that nobody reads would fill
        self._process: subprocess.Popen[str] | None = None

    def _bind(self, folder: Path, at: str, how: str) -> None:
        Path(at).mkdir(parents=True, exist_ok=True)
        mount("--bind", folder, at)
        mount("-o", f"remount,{how}", at)

    def start(self) -> None:
        """Starts it, and waits until its first probe passes."""
        said = self._said
        self._process = subprocess.Popen(
            said["command"],
            env=said["environment"],
            cwd="/",
            user=said["user"],
            group=said["group"],
            extra_groups=[said["group"]],
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            text=True,
        )
        self.until(lambda: self.probe("startupProbe") == 200)

    def ask(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and body of an answer; status 0: nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self._said["port"], timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except OSError:
            return 0, {}
        finally:
            connection.close()

    def probe(self, name: str) -> int:
        """What a probe of the container sees."""
        return self.ask(self._said["probes"][name])[0]

    def state(self) -> dict[str, Any]:
        """What it says of its only manifest."""
        said = self.ask(self._said["probes"]["readinessProbe"])[1]
        found = said.get("manifests", [{}])[0]
        return {key: found.get(key) for key in ("name", "status", "generation")}

    def until(self, holds: Callable[[], bool]) -> None:
        """Waits for something.

        Raises:
            SystemExit: the process ended, or it takes too long.
        """
        ends = time.monotonic() + _STARTS_WITHIN_S
        process = self._process
        assert process is not None
        while not holds():
            if process.poll() is not None or time.monotonic() > ends:
                raise SystemExit(f"not seen; the log: {self._read()}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Ends it, if it still runs."""
        if self._process is not None:
            self._process.kill()

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, number: signal.Signals) -> int:
        """Ends it; its exit status."""
        self.send(number)
        process = self._process
        assert process is not None
        process.wait()
        self.lines = self._read().splitlines()
        return process.returncode

    def _read(self) -> str:
        self._log.seek(0)
        return self._log.read()


def live(pod: Pod, said: dict[str, Any]) -> dict[str, Any]:
    """A pod's life: start, change, break, be killed and start again, be mended, end."""
    good, other, broken = ({said["file"]: text} for text in said["texts"])
    pod.map.write(good)
    pod.start()
    seen: dict[str, Any] = {"probes": {name: pod.probe(name) for name in said["probes"]}}
    seen["started"] = pod.state()
    pod.map.write(other)
    pod.until(lambda: pod.state()["generation"] == 2)
    seen["changed"] = pod.state()
    pod.map.write(broken)
    pod.until(lambda: pod.state()["status"] == "degraded")
    seen["broken"] = [pod.state(), pod.probe("readinessProbe")]
    pod.end(signal.SIGKILL)
    pod.start()
    seen["killed"] = [pod.state(), pod.ask("/v1/backends")[0]]
    pod.map.write(good)
    pod.until(lambda: pod.state()["status"] == "ready")
    seen["mended"] = pod.state()
    pod.send(signal.SIGTERM)
    pod.until(lambda: pod.probe("readinessProbe") == 503)
    seen["draining"] = [pod.probe("readinessProbe"), pod.ask("/v1/backends")[0]]
    seen["exit"] = pod.end(signal.SIGTERM)  # a second one skips the delay
    seen["log"] = pod.lines
    return seen


def main() -> None:
    """Prints what was seen."""
    said = json.loads(sys.argv[1])
    bring_loopback_up()
    pod = Pod(said)
    try:
        print(json.dumps(live(pod, said)))
    finally:
        pod.kill()


if __name__ == "__main__":
    main()
