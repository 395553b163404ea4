"""An application that answers every request with so many bytes: what serving costs by itself."""

from __future__ import annotations

import socket
import sys
from typing import Any

import uvicorn


def application(size: int) -> Any:
    """The application; each answer has ``size`` bytes."""
    body = b"x" * size
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % size)]

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return answer


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    config = uvicorn.Config(
        application(int(sys.argv[1])),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="off",
    )
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(config).run([listening])
