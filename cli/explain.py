"""``attnsel explain``: why not, and the smallest change that would make each backend eligible."""

from __future__ import annotations

from typing import Annotated

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

LogOption = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="FILE|-",
        help="Explain the attention errors of an engine's log; -: standard input. The manifest is "
        "then vllm-0.33.0 by default; that of the log's own version answers where it lies beside "
        "it. --gpu, --arch and --set override what the log says.",
    ),
]


def explain(
    context: typer.Context,
    log: LogOption = None,
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
    if log is not None:
        from cli.diagnosing import explain_log

        explain_log(log, context.params, form)
        return
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
