"""``attnsel resolve``: which backend runs prefill, which runs decode, and why not the others."""

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
    FallbackOption,
    Format,
    FormatOption,
    Gpu,
    ManifestOption,
    ModelOption,
    OverlayOption,
    PrefillBackend,
    QueryLen,
    SeqLen,
    ServerOption,
    Settings,
    TimeoutOption,
    TokenFileOption,
)


def resolve(
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
    server: ServerOption = None,
    timeout: TimeoutOption = None,
    token_file: TokenFileOption = None,
    fallback: FallbackOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say which backends run a layer, and why not the others.

    Example: attnsel resolve --gpu H200 --model qwen3-8b --query-len 512
    """
    from cli.asking import Flags, ask_all
    from cli.terminal import complain, places, show, show_json
    from selector.report.answer import answer_lines
    from selector.report.data import answer_json
    from selector.report.failure import failure_words

    flags = Flags.of(context.params)
    if flags.server is None:
        asked = ask_all(flags)
    else:
        from cli.remote import ask_server

        asked = ask_server(flags.server, flags)
    where = places(asked.selector.manifest.ref.file)
    if form is Format.JSON:
        show_json(answer_json(asked.cases))
    else:
        show(answer_lines(asked.cases, asked.selector.manifest, where))
    if (words := failure_words(asked.cases, asked.selector, where)) is not None:
        complain(words)
        raise typer.Exit(Exit.NO_BACKEND)
