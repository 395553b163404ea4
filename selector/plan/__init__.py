"""A manifest compiled: the definition's plain choices, in microseconds."""

from __future__ import annotations

from selector.plan.cells import Cells
from selector.plan.plan import Plan
from selector.plan.tail import Pick

__all__ = ["Cells", "Pick", "Plan"]
