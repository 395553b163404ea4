"""``make fuzz``: random commands, logs and manifests give an answer or one line, and soon."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz import commands, lint, logs
from tests.fuzz.outcome import warm_up


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="another one gives other cases")
    parser.add_argument("--commands", type=int, default=10_000, metavar="N")
    parser.add_argument("--logs", type=int, default=10_000, metavar="N")
    parser.add_argument("--manifests", type=int, default=20_000, metavar="N")
    said = parser.parse_args()
    failed = bool(said.manifests) and not lint.run(said.manifests, said.seed)
    warm_up()
    for room, count in ((commands, said.commands), (logs, said.logs)):
        if count:
            tally = room.run(count, said.seed)
            tally.show()
            failed |= bool(tally.failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(_main())
