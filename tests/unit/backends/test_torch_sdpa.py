import contextlib
import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from backends import torch_sdpa
from backends.contract import Adapter, Batch, Plan, RefusedError, relative_error
from backends.inputs import make_inputs
from backends.reference import attend
from backends.torch_sdpa import SdpaAdapter

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

ON_CPU = [torch_sdpa.math, torch_sdpa.flash]
ALL = [*ON_CPU, torch_sdpa.efficient, torch_sdpa.cudnn]
DTYPES = ["float32", "bfloat16", "float16"]
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

# One change at a time around the mixed batch of ``make_batch``, then the changes that interact.
SHAPES: dict[str, dict[str, Any]] = {
    "mixed": {},
    "prefill": {"query_lens": (33, 1, 16), "seq_lens": (33, 1, 16)},
    "cached context": {"query_lens": (2, 16, 5), "seq_lens": (3, 64, 100)},
    "decode": {"query_lens": (1, 1, 1), "seq_lens": (2, 16, 70)},
    "decode, equal lengths": {"query_lens": (1, 1), "seq_lens": (48, 48)},
    "group 1": {"num_kv_heads": 8},
    "group 8": {"num_kv_heads": 1},
    "pages of 1": {"page_size": 1},
    "pages of 7": {"page_size": 7},
    "pages of 64": {"page_size": 64},
    "non-causal": {"causal": False},
    "window 1": {"sliding_window": 1},
    "window 6": {"sliding_window": 6},
    "window on a page's edge": {"sliding_window": 16},
    "window past the end": {"sliding_window": 40},
    "window, decode": {"query_lens": (1, 1), "seq_lens": (70, 9), "sliding_window": 10},
    "window, non-causal": {"sliding_window": 6, "causal": False},
    "window, non-causal, pages of 1": {"sliding_window": 3, "causal": False, "page_size": 1},
    "scale": {"scale": 0.5},
    "head size 1": {"head_size": 1, "v_head_size": 1},
    "head size 65": {"head_size": 65, "v_head_size": 65},
    "head size 256": {"head_size": 256, "v_head_size": 256},
    "long": {"query_lens": (1, 130), "seq_lens": (700, 520), "head_size": 64, "v_head_size": 64},
}


def error_of(adapter: Adapter, batch: Batch, device: str = "cpu", seed: int = 0) -> float:
    inputs = make_inputs(batch, device, seed)
    out = adapter.plan(batch, device).run(inputs.q, inputs.kv, inputs.sinks)
    assert out.shape == (sum(batch.query_lens), batch.num_heads, batch.v_head_size)
    assert out.dtype == inputs.q.dtype
    assert out.device == inputs.q.device
    return relative_error(out, attend(batch, inputs.q, inputs.kv, inputs.sinks))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("adapter", ON_CPU, ids=lambda a: a.kernel)
def test_agrees_with_the_reference_on_the_cpu(
    make_batch: Callable[..., Batch], adapter: SdpaAdapter, shape: str, dtype: str
) -> None:
    batch = make_batch(**SHAPES[shape], dtype=dtype)
    assert error_of(adapter, batch) <= adapter.tolerance(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_math_takes_values_of_another_size(make_batch: Callable[..., Batch], dtype: str) -> None:
    batch = make_batch(head_size=24, v_head_size=16, dtype=dtype)
    assert error_of(torch_sdpa.math, batch) <= torch_sdpa.math.tolerance(dtype)


@pytest.mark.parametrize("group", [1, 4, 8])
def test_repeating_kv_heads_is_the_same_as_grouping(
    make_batch: Callable[..., Batch], group: int
) -> None:
    """What the efficient kernel needs, shown with a kernel that runs anywhere."""
    repeating = dataclasses.replace(torch_sdpa.math, repeats_kv=True)
    batch = make_batch(num_kv_heads=8 // group)
    assert error_of(repeating, batch) <= repeating.tolerance("float32")


def test_flash_refuses_values_of_another_size_in_torchs_words(
    make_batch: Callable[..., Batch],
) -> None:
    with pytest.raises(RefusedError) as caught:
        error_of(torch_sdpa.flash, make_batch(head_size=24))
    said = str(caught.value)
    assert said.startswith("torch_sdpa_flash: Flash attention requires q,k,v to have the same last")
    assert "Query.size(-1): 24" in said
    assert "\n" not in said
    assert "Triggered" not in said


@pytest.mark.parametrize("adapter", ALL, ids=lambda a: a.kernel)
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"soft_cap": 30.0}, "soft_cap"),
        ({"sinks": True}, "sinks"),
        ({"features": frozenset({"alibi", "mm_prefix"})}, "alibi, mm_prefix"),
        ({"sinks": True, "features": frozenset({"mla"})}, "mla, sinks"),
    ],
)
def test_what_sdpa_cannot_say_is_refused_by_name(
    make_batch: Callable[..., Batch], adapter: SdpaAdapter, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        adapter.plan(make_batch(**changes), "cpu")
    assert str(caught.value) == f"{adapter.name} cannot express {named}"


@pytest.mark.parametrize("adapter", [torch_sdpa.efficient, torch_sdpa.cudnn], ids=lambda a: a.name)
def test_cuda_kernels_refuse_the_cpu_and_nothing_takes_their_place(
    make_batch: Callable[..., Batch], adapter: SdpaAdapter
) -> None:
    with pytest.raises(RefusedError, match=f"{adapter.name}: No (viable|available)"):
        error_of(adapter, make_batch())


@pytest.mark.parametrize("adapter", ON_CPU, ids=lambda a: a.kernel)
def test_a_cache_of_another_dtype_is_refused(
    make_batch: Callable[..., Batch], adapter: SdpaAdapter
) -> None:
    for kv_dtype in ("bfloat16", "fp8_e4m3"):
        with pytest.raises(RefusedError, match="to have the same dtype"):
            error_of(adapter, make_batch(kv_dtype=kv_dtype))
    with pytest.raises(RefusedError, match="nvfp4 is not an element type"):
        adapter.plan(make_batch(kv_dtype="nvfp4"), "cpu")


@pytest.mark.parametrize("adapter", ON_CPU, ids=lambda a: a.kernel)
def test_eight_bit_queries_are_refused(
    make_batch: Callable[..., Batch], adapter: SdpaAdapter
) -> None:
    with pytest.raises(RefusedError):
        error_of(adapter, make_batch(dtype="fp8_e4m3"))


def test_a_missing_device_is_refused(make_batch: Callable[..., Batch]) -> None:
    with pytest.raises(RefusedError, match="no device cuda:99"):
        torch_sdpa.math.plan(make_batch(), "cuda:99")


class Seen(TorchDispatchMode):  # type: ignore[misc]
    """Names of the attention kernels that torch reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_that_runs_is_the_one_asked_for(
    make_batch: Callable[..., Batch], shape: str
) -> None:
    batch = make_batch(**SHAPES[shape])
    inputs = make_inputs(batch)
    for adapter, ran in ((torch_sdpa.flash, True), (torch_sdpa.math, False)):
        plan = adapter.plan(batch, "cpu")
        with Seen() as seen:
            plan.run(inputs.q, inputs.kv)
        assert ("_scaled_dot_product_flash_attention_for_cpu" in seen.names) is ran
        assert ("_softmax" in seen.names or "_safe_softmax" in seen.names) is not ran


def test_only_keys_that_a_query_can_see_are_gathered(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch(query_lens=(3,), seq_lens=(100,), sliding_window=10)
    (span,) = torch_sdpa.math.plan(batch, "cpu").spans
    assert (span.first, span.end) == (88, 100)  # queries at 97 … 99 look back to 88


def test_plans_run_again_and_leave_no_state(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch()
    inputs = make_inputs(batch)
    plan = torch_sdpa.flash.plan(batch, "cpu")
    assert isinstance(plan, Plan)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = plan.run(inputs.q, inputs.kv)
    assert torch.equal(first, plan.run(inputs.q, inputs.kv))
    assert torch.backends.cuda.math_sdp_enabled()
    with pytest.raises(RefusedError):
        error_of(torch_sdpa.efficient, batch)
    assert torch.backends.cuda.math_sdp_enabled()


def test_other_errors_pass_through(
    make_batch: Callable[..., Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", full)
    with pytest.raises(torch.OutOfMemoryError):
        error_of(torch_sdpa.math, make_batch())


def test_a_dtype_without_a_measured_tolerance_allows_no_error() -> None:
    assert torch_sdpa.math.tolerance("fp8_e5m2") == 0


@pytest.mark.gpu
@CUDA
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("adapter", ALL, ids=lambda a: a.kernel)
def test_on_a_gpu_a_kernel_is_right_or_refuses(
    make_batch: Callable[..., Batch], adapter: SdpaAdapter, dtype: str
) -> None:
    errors: dict[str, float] = {}
    for shape, changes in SHAPES.items():
        with contextlib.suppress(RefusedError):
            errors[shape] = error_of(adapter, make_batch(**changes, dtype=dtype), "cuda")
    assert {s: e for s, e in errors.items() if e > adapter.tolerance(dtype)} == {}
    if dtype != "float32":
        assert {"mixed", "cached context", "decode", "group 8", "non-causal"} <= set(errors)
