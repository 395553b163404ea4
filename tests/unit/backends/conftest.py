from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backends.contract import Batch


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    """A batch of mixed lengths: a fresh prefill, a decode, and prefills with cached context."""

    def make(**changes: Any) -> Batch:
        base: dict[str, Any] = {
            "query_lens": (5, 1, 9, 17),
            "seq_lens": (5, 40, 20, 33),
            "num_heads": 8,
            "num_kv_heads": 2,
            "head_size": 16,
            "v_head_size": 16,
            "page_size": 16,
            "dtype": "float32",
        }
        return Batch(**(base | changes))

    return make
