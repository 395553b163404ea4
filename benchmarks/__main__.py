"""All benchmarks: ``python -m benchmarks``. Figures are printed and written to a file."""

from __future__ import annotations

import sys
from pathlib import Path

from . import batch, lint, plan
from .harness import report

if __name__ == "__main__":
    figures = (figure for part in (plan, batch, lint) for figure in part.figures())
    sys.exit(not report(figures, Path(__file__).parent / "results"))
