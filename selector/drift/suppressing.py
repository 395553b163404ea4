"""Comments of a manifest that switch findings of drift off, in the form of lint's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from selector.drift.rules import RULES
from selector.lint.suppressing import UNUSED, without_suppressed
from selector.values import Finding, Severity

__all__ = ["without_switched_off"]


def without_switched_off(
    found: Sequence[Finding], texts: Mapping[str, str], *, overlaid: bool = False
) -> list[Finding]:
    """Findings without those that comments switch off, and with what such comments do in vain.

    Args:
        found: what a comparison gives.
        texts: file → its text, of the manifest and its overlays.
        overlaid: whether there are overlays; the manifest's own comments may then do nothing.
    """
    ours = {rule.code for rule in RULES}
    broken = any(f.code.startswith("DRF1") and f.severity is Severity.ERROR for f in found)
    judged = () if broken else [*texts][1:] if overlaid else [*texts]
    left = without_suppressed(found, texts, lambda code: code == UNUSED or code in ours, judged)
    return sorted(left)
