"""Questions of the command line that a server answers."""

from __future__ import annotations

from cli.asking import Asked, Flags, UsageError, putting
from cli.tokens import read_token
from selector.exchange import ServerError
from selector.remote import RemoteSelector

__all__ = ["ask_server"]

_TIMEOUT_S = 5.0
_TRIES = 3
_TURNS = 2


def ask_server(url: str, flags: Flags) -> Asked:
    """What a server answers, with the manifest that it answered from.

    The manifest says what settings mean and words the answer. If another one answers, because it
    changed, or because what stands between asks several servers in turn, both are asked again.

    Raises:
        AttnselError: the server refuses the question, or gives no answer.
        UsageError: an option speaks of files, which a server does not read for others.
    """
    put = putting(flags)
    named = flags.manifest
    if named is not None and ("/" in named or named.endswith((".yaml", ".yml"))):
        raise UsageError(
            f'--manifest "{named[:60]}" is a path, and --server reads none: give a name it serves'
        )
    if flags.overlay:
        raise UsageError("--overlay does not go with --server, which has its own overlays")
    token = None if flags.token_file is None else read_token(flags.token_file)
    with RemoteSelector(
        url,
        manifest=named,
        as_claimed=flags.as_claimed,
        timeout_s=_TIMEOUT_S if flags.timeout is None else flags.timeout,
        token=token,
        fallback=flags.fallback,
    ) as remote:
        for _ in range(_TRIES):
            try:
                selector = remote.fetch()
            except ServerError as error:
                if error.code != "CHANGED":
                    raise
                continue
            for _ in range(_TURNS):
                asked = put(selector, remote)
                answered = {case.resolution.manifest.digest for case in asked.cases}
                if answered == {selector.manifest.ref.digest}:
                    return asked
        raise ServerError(f"{remote.url}: its manifest keeps changing; ask again", "CHANGED")
