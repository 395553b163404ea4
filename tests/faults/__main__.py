"""``make faults``: broken files, killed servers, malformed requests, slow clients, and memory."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults import described, kills, malformed, memory, reloads, slow


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="another one gives other cases")
    parser.add_argument("--reloads", type=int, default=1000, metavar="N")
    parser.add_argument("--kills", type=int, default=25, metavar="N")
    parser.add_argument("--requests", type=int, default=10_000, metavar="N")
    parser.add_argument("--slow", type=int, default=200, metavar="N")
    parser.add_argument("--minutes", type=float, default=0.0, metavar="N", help="of mixed load")
    said = parser.parse_args()
    half, seed = said.requests // 2, said.seed
    parts: list[tuple[float, Callable[[Path], object]]] = [
        (said.reloads, lambda folder: reloads.run(said.reloads, seed, folder)),
        (said.kills, lambda folder: kills.run(said.kills, seed, folder)),
        (said.kills, kills.drain),
        (said.requests, lambda folder: described.run(half, seed, folder)),
        (said.requests, lambda folder: malformed.run_raw(half, seed, folder)),
        (said.slow, lambda folder: slow.run(said.slow, seed, folder)),
        (said.minutes, lambda folder: memory.run(folder, seed, said.minutes)),
    ]
    failed = False
    for wanted, part in parts:
        if wanted:
            failed |= not _show(part)
    return int(failed)


def _show(part: Callable[[Path], object]) -> bool:
    """Runs a part and prints its figures; whether it held."""
    with TemporaryDirectory() as folder:
        try:
            print(part(Path(folder)), flush=True)
        except Exception:
            traceback.print_exc()
            print("FAILED", flush=True)
            return False
    return True


if __name__ == "__main__":
    sys.exit(_main())
