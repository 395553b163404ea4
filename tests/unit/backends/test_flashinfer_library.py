"""FlashInfer's refusals, its faults, and what may be missing."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

from backends import flashinfer as adapters
from backends.contract import Batch, RefusedError
from backends.flashinfer import library

torch = pytest.importorskip("torch")
pytest.importorskip("flashinfer")

# -- refusals and faults -----------------------------------------------------------------------

OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
NINJA = """Ninja build failed. Ninja output:
ninja: Entering directory `/root/.cache/flashinfer'
[1/9] nvcc --generate-dependencies -c /root/x/batch_prefill_paged.cu
FAILED: batch_prefill_paged.cuda.o
/opt/include/flashinfer/attention/prefill.cuh(2101): error: static assertion failed with "HEAD 65"
1 error detected in the compilation of "/root/x/batch_prefill_paged.cu"."""


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ValueError("page_size must be one of 16"), "b: page_size must be one of 16"),
        (NotImplementedError("no RoPE"), "b: no RoPE"),
        (AssertionError("only fp8"), "b: only fp8"),
        (KeyError(torch.float32), "b: no kernel is built for torch.float32"),
        (
            RuntimeError("frame 1\nUnsupported group_size: 5\nat x.cu"),
            "b: Unsupported group_size: 5",
        ),
        (RuntimeError("Error in function 'f' at x:1: Unsupported head_dim: 80"), "head_dim: 80"),
        (RuntimeError("Could not find nvcc and default cuda_home"), "b: nvcc is not installed"),
        (RuntimeError("Ninja build failed.\n/bin/sh: 1: /x/bin/nvcc: not found"), "nvcc is not"),
        (FileNotFoundError(2, "No such file", "ninja"), "b: ninja is not installed"),
        (RuntimeError(NINJA), 'compile: prefill.cuh(2101): error: static assertion .*"HEAD 65"'),
    ],
)
def test_refusals_of_flashinfer_become_one_line(
    make_batch: Callable[..., Batch], raised: Exception, said: str
) -> None:
    kernel = make_batch(scale=float(len(str(raised))))
    with pytest.raises(RefusedError) as caught, library.asking("b", kernel):
        raise raised
    assert re.search(said.replace("(", r"\(").replace(")", r"\)"), str(caught.value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "raised",
    [
        OUT_OF_MEMORY,
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: unspecified launch failure"),
        RuntimeError("Failed to allocate memory for batch_prefill_tmp_v with size 9 and alignment"),
        RuntimeError("Ninja build failed. Ninja output:\nnvcc: Killed"),
        RuntimeError("CUDNN_STATUS_EXECUTION_FAILED: no engine could be launched"),
        RuntimeError("something else"),
        TypeError("plan() got an unexpected keyword argument"),
    ],
    ids=lambda e: str(e)[:40],
)
def test_faults_pass_through(make_batch: Callable[..., Batch], raised: Exception) -> None:
    with pytest.raises(type(raised)) as caught, library.asking("b", make_batch()):
        raise raised
    assert caught.value is raised


# -- what is missing ---------------------------------------------------------------------------


def test_a_missing_library_is_one_line(
    make_batch: Callable[..., Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(RefusedError) as caught:
        adapters.fa2.plan(make_batch(), "cpu")
    assert str(caught.value) == (
        "flashinfer_fa2: flashinfer-python is not installed: pip install attnsel[flashinfer]"
    )


def test_a_missing_name_says_which_release_lacks_it() -> None:
    with pytest.raises(RefusedError, match=r"^b: flashinfer-python [\d.]+ has no flashinfer:Fa9$"):
        library.find("b", "flashinfer:Fa9")


def test_a_missing_device_is_one_line(make_batch: Callable[..., Batch]) -> None:
    with pytest.raises(RefusedError, match=r"^flashinfer_fa3: no device cuda:99: ") as caught:
        adapters.fa3.plan(make_batch(), "cuda:99")
    assert "\n" not in str(caught.value)


def test_cudnn_without_its_frontend_is_refused() -> None:
    with pytest.raises(
        RefusedError, match=r"^b: nvidia-nothing is not installed: pip install nvid"
    ):
        library.require("b", "nothing_of_that_name", "nvidia-nothing")
