"""``attnsel explain``: why not, and the smallest change that would make each backend eligible."""

from __future__ import annotations

import typer

from cli.exits import Exit
from cli.options import (
    Arch,
    AsClaimed,
    BackendName,
    ClosedWorld,
    DecodeBackend,
    Deny,
    FactsOption,
    Format,
    FormatOption,
    Gpu,
    ManifestOption,
    ModelOption,
    OverlayOption,
    PrefillBackend,
    QueryLen,
    SeqLen,
    Settings,
)


def explain(
    context: typer.Context,
    manifest: ManifestOption = None,
    overlay: OverlayOption = None,
    arch: Arch = None,
    gpu: Gpu = None,
    model: ModelOption = None,
    settings: Settings = None,
    query_len: QueryLen = None,
    seq_len: SeqLen = None,
    backend: BackendName = None,
    prefill_backend: PrefillBackend = None,
    decode_backend: DecodeBackend = None,
    deny: Deny = None,
    facts: FactsOption = None,
    as_claimed: AsClaimed = False,
    closed_world: ClosedWorld = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say why not, and the smallest change that would help.

    Example: attnsel explain --arch 7.5 --model qwen3-8b
    """
    from cli.asking import Flags, ask_all
    from cli.terminal import complain, places, show, show_json
    from selector.report.explanation import explain as explain_case
    from selector.report.explanation import explanation_json, explanation_lines
    from selector.report.failure import failure_words

    asked = ask_all(Flags.of(context.params))
    explained = [explain_case(case, asked.selector) for case in asked.cases]
    where = places(asked.selector.manifest.ref.file)
    if form is Format.JSON:
        show_json(explanation_json(explained))
    else:
        show(explanation_lines(explained, asked.selector, where))
    if (words := failure_words(asked.cases, asked.selector, where)) is not None:
        complain(words)
        raise typer.Exit(Exit.NO_BACKEND)
