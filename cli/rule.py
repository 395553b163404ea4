"""``attnsel rule``: what a rule of lint or drift means."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.options import Format, FormatOption

__all__ = ["rule"]


def complete_rule(incomplete: str) -> list[str]:
    """Codes that begin so."""
    from selector.lint.catalogue import codes

    return [code for code in codes() if code.startswith(incomplete.upper())]


def rule(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="A code such as CAP005 or DRF002. Without one: all rules of lint.",
            autocompletion=complete_rule,
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say what a rule of lint or drift finds, why, and how to write it instead.

    Example: attnsel rule CAP005
    """
    from cli.terminal import show, show_json
    from selector.drift.rules import RULES
    from selector.lint.catalogue import find_rule, rules
    from selector.report.catalogue import rule_json, rule_lines, rules_lines

    if code is not None:
        of_drift = {one.code: one for one in RULES}
        found = of_drift.get(code.upper()) or find_rule(code)
        if form is Format.JSON:
            show_json(rule_json(found))
        else:
            show(rule_lines(found))
    elif form is Format.JSON:
        show_json([rule_json(one) for one in rules()])
    else:
        show(rules_lines(rules()), whole=True)
