"""A worker whose package ``backends`` has one more module: adapters that do as they are told.

A script, in the place of ``python -m backends.worker``. What to do stands in the batch, as its page
size.
"""

import os
import sys
import time
from types import SimpleNamespace
from typing import Any

import msgspec

from backends import worker
from backends.contract import Batch, RefusedError, UncompilableError
from backends.reference import attend

RIGHT, ABORT, EXIT, HANG, WRONG, LATE, FAULT, UNCOMPILABLE, LOST_BUILD, SPOILS = range(1, 11)


def fail(device: str) -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


class Crashing:
    """Does what the page size says."""

    name = "crashing"
    reads_pages = True
    unverified = ""

    def __init__(self, compiled: bool) -> None:
        if compiled:
            self.kernel = lambda batch: msgspec.structs.replace(batch, seq_lens=(3,))

    def tolerance(self, dtype: str) -> float:
        return 1e-3

    def prepare(self, batches: tuple[Batch, ...], device: str = "cuda") -> None:
        if any(batch.page_size == LOST_BUILD for batch in batches):
            os.abort()

    def plan(self, batch: Batch, device: str) -> Any:
        if batch.page_size == UNCOMPILABLE:
            if batch.seq_lens != (3,):
                os.abort()  # asked again
            raise UncompilableError("crashing: does not compile")
        return SimpleNamespace(run=lambda *given: self.run(batch, *given))

    def run(self, batch: Batch, q: Any, kv: Any, sinks: Any = None) -> Any:
        if batch.page_size == SPOILS:
            worker._touch = fail
        if worker._touch is fail and batch.page_size == RIGHT:
            return attend(batch, q, kv) * 2
        if batch.page_size == ABORT:
            print("CUDA error: an illegal memory access", file=sys.stderr, flush=True)
            os.abort()
        if batch.page_size == EXIT:
            os._exit(3)
        if batch.page_size == HANG:
            time.sleep(600)
        if batch.page_size == LATE:
            raise RefusedError("crashing: no")
        if batch.page_size == FAULT:
            raise ValueError("what\nis that")
        return attend(batch, q, kv) * (2 if batch.page_size == WRONG else 1)


plain, compiled = Crashing(compiled=False), Crashing(compiled=True)

if __name__ == "__main__":
    sys.modules["backends.crashing"] = sys.modules["__main__"]
    if sys.argv[2] == "nowhere":
        sys.exit("no such device")
    worker.main(*sys.argv[1:])
