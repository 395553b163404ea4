"""A process that answers jobs: ``python -m backends.worker SOCKET DEVICE``.

It may die at any time; :mod:`backends.workers` is what survives.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import warnings
from contextlib import suppress
from multiprocessing.connection import Connection

import msgspec

from backends.contract import RefusedError, UncompilableError, named_line
from backends.judging import CaseResult, run_case
from backends.registry import load_adapter
from backends.workers import Answer, Build, Built, Job, Run

__all__ = ["main"]


def main(socket: str, device: str) -> None:
    """Answers jobs until the other end closes.

    Args:
        socket: number of the open socket.
        device: to work on, in torch's words.
    """
    # Nothing here hands an array to NumPy, so torch need not say that it found none.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    _end_with_parent()
    os.set_inheritable(int(socket), False)
    line = Connection(int(socket))
    decode = msgspec.json.Decoder(Job).decode
    _touch(device)
    line.send_bytes(msgspec.json.encode(Answer()))
    fit = True
    while fit:
        try:
            job = decode(line.recv_bytes())
        except EOFError:
            return
        ran, built = (_run(job), None) if isinstance(job, Run) else (None, _build(job))
        fit = _is_fit(device)
        line.send_bytes(msgspec.json.encode(Answer(ran, built, fit)))


def _end_with_parent() -> None:
    """Has Linux end this process with the one that started it, which alone knows what hangs."""
    pr_set_pdeathsig = 1
    with suppress(AttributeError, OSError):  # elsewhere a job that hangs outlives it
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _run(job: Run) -> CaseResult:
    return run_case(load_adapter(job.adapter), job.case, job.device, job.seed)


def _build(job: Build) -> Built:
    adapter = load_adapter(job.adapter)
    try:
        adapter.prepare(job.batches, job.device)
        for batch in job.batches:
            adapter.plan(batch, job.device)  # says again what a compiler said
    except UncompilableError as error:
        return Built(refused=str(error))
    except RefusedError:
        return Built()  # whoever runs such a batch will hear why
    except Exception as error:  # what it is will be seen again where it is judged
        return Built(failed=named_line(error))
    return Built()


def _touch(device: str) -> None:
    """Uses the device once; a fault that a kernel left behind comes up here.

    Raises:
        RuntimeError: the device does not work, or no longer.
    """
    import torch

    torch.ones(1, device=device).sum().item()


def _is_fit(device: str) -> bool:
    try:
        _touch(device)
    except Exception:  # whatever it is, another process must go on
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
