"""All benchmarks: ``python -m benchmarks``. Figures are printed and written to a file."""

from __future__ import annotations

import sys
from pathlib import Path

from . import analysis, batch, lint, plan, serving
from .harness import report

if __name__ == "__main__":
    figures = (
        figure for part in (plan, batch, analysis, serving, lint) for figure in part.figures()
    )
    sys.exit(not report(figures, Path(__file__).parent / "results"))
