import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from backends.contract import Batch, MlaShape, RefusedError, relative_error, torch_dtype
from backends.inputs import STRAY, make_inputs
from selector.errors import ContradictionError

torch = pytest.importorskip("torch")

MLA = MlaShape(kv_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=12)
LATENT = {"mla": MLA, "num_kv_heads": 1, "head_size": 40, "v_head_size": 32}
MODULES = [
    "contract",
    "inputs",
    "reference",
    "torch_sdpa",
    "registry",
    "probe",
    "certify",
    "flashinfer",
]


def test_importing_every_module_imports_no_torch() -> None:
    imports = "; ".join(f"import backends.{name}" for name in MODULES)
    code = f"{imports}; import sys; print(sorted({{'torch', 'flashinfer'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"query_lens": (), "seq_lens": ()}, "at least one request"),
        ({"query_lens": (1,)}, "1 query_lens and 4 seq_lens"),
        ({"query_lens": (6,), "seq_lens": (5,)}, "query_len 6 is not between 1 and seq_len 5"),
        ({"query_lens": (0,), "seq_lens": (5,)}, "query_len 0"),
        ({"num_heads": 6, "num_kv_heads": 4}, "num_heads 6 is no multiple of num_kv_heads 4"),
        ({"num_kv_heads": 0}, "num_kv_heads 0"),
        ({"head_size": 0}, "head_size 0"),
        ({"page_size": 0}, "page_size 0"),
        ({"sliding_window": 0}, "sliding_window 0"),
        ({"topk": 0}, "topk 0"),
        ({"mla": MLA}, "are 2, 16, 16; its MLA dimensions make them 1, 40, 32"),
        ({"mla": MLA, "path": "mha"}, "its MLA dimensions make them 8, 24, 12"),
    ],
)
def test_a_batch_that_cannot_exist_is_a_contradiction(
    make_batch: Callable[..., Batch], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ContradictionError, match=said):
        make_batch(**changes)


def test_rows_follow_one_another(make_batch: Callable[..., Batch]) -> None:
    rows = make_batch(query_lens=(2, 1, 3), seq_lens=(9, 9, 9)).query_rows()
    assert rows == (slice(0, 2), slice(2, 3), slice(3, 6))


def test_defaults_are_settled(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch(head_size=64)
    assert (batch.group, batch.cache_dtype, batch.softmax_scale) == (4, "float32", 0.125)
    batch = make_batch(kv_dtype="fp8_e4m3", scale=2.0)
    assert (batch.cache_dtype, batch.softmax_scale) == ("fp8_e4m3", 2.0)


def test_inputs_place_every_token_once_and_the_rest_is_stray(
    make_batch: Callable[..., Batch],
) -> None:
    batch = make_batch(page_size=7)
    inputs = make_inputs(batch)
    kv = inputs.kv
    assert inputs.q.shape == (32, 8, 16)
    assert kv.page_table.dtype == kv.seq_lens.dtype == torch.int32
    assert kv.seq_lens.tolist() == list(batch.seq_lens)
    owned = torch.zeros(kv.k_pages.shape[:2], dtype=torch.bool)
    for request, seq_len in enumerate(batch.seq_lens):
        for token in range(seq_len):
            page, slot = kv.page_table[request, token // 7], token % 7
            assert not owned[page, slot]
            owned[page, slot] = True
    for pages in (kv.k_pages, kv.v_pages):
        assert (pages[~owned] == STRAY).all()
        assert not (pages[owned] == STRAY).any()


def test_the_scale_of_a_latent_is_that_of_its_expanded_heads(
    make_batch: Callable[..., Batch],
) -> None:
    assert make_batch(**LATENT).softmax_scale == pytest.approx(24**-0.5)
    expanded = make_batch(mla=MLA, path="mha", num_kv_heads=8, head_size=24, v_head_size=12)
    assert expanded.softmax_scale == pytest.approx(24**-0.5)
    assert (make_batch(**LATENT).latent, expanded.latent, make_batch().latent) == (
        True,
        False,
        False,
    )


def test_values_of_a_latent_are_the_first_elements_of_its_keys(
    make_batch: Callable[..., Batch],
) -> None:
    kv = make_inputs(make_batch(**LATENT, kv_dtype="fp8_e4m3")).kv
    assert kv.v_pages.shape[-1] == 32
    assert kv.v_pages.data_ptr() == kv.k_pages.data_ptr()
    assert kv.v_pages.dtype == torch.float8_e4m3fn


@pytest.mark.parametrize("causal", [True, False])
def test_a_query_lists_as_much_as_it_may_see_and_no_more_than_the_topk(
    make_batch: Callable[..., Batch], causal: bool
) -> None:
    batch = make_batch(topk=12, causal=causal)
    indices = make_inputs(batch).indices
    assert indices is not None
    assert indices.shape == (32, 12)
    assert indices.dtype == torch.int32
    ordered = 0
    for rows, seq_len in zip(batch.query_rows(), batch.seq_lens, strict=True):
        for row in range(rows.start, rows.stop):
            seen = seq_len - (rows.stop - 1 - row) if causal else seq_len
            listed = indices[row][indices[row] >= 0].tolist()
            assert len(set(listed)) == len(listed) == min(12, seen)
            assert max(listed) < seen
            assert indices[row, len(listed) :].eq(-1).all()
            ordered += listed == sorted(listed)
    assert ordered < 8


def test_pages_are_shuffled_and_values_follow_the_seed(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch(query_lens=(1,), seq_lens=(64,), page_size=4)
    one, same, other = (make_inputs(batch, seed=seed) for seed in (1, 1, 2))
    order = one.kv.page_table[0].tolist()
    assert order != sorted(order)
    assert torch.equal(one.kv.k_pages, same.kv.k_pages)
    assert not torch.equal(one.q, other.q)


@pytest.mark.parametrize(
    ("name", "dtype"), [("bfloat16", "bfloat16"), ("fp8", "float8_e4m3fn"), ("int8", "int8")]
)
def test_dtypes_have_the_manifests_names(name: str, dtype: str) -> None:
    assert torch_dtype(name) is getattr(torch, dtype)


@pytest.mark.parametrize("name", ["nvfp4", "fp8_ds_mla", "turboquant_k8v4", "unset", "Tensor"])
def test_a_packed_layout_is_no_dtype(name: str) -> None:
    with pytest.raises(RefusedError, match=f"dtype {name} is not an element type"):
        torch_dtype(name)


def test_relative_error_is_that_of_the_worst_token() -> None:
    expected = torch.ones(3, 2, 4).double()
    out = expected.clone()
    out[1] *= 1.25
    assert relative_error(out, expected) == pytest.approx(0.25)
    assert relative_error(expected.float(), expected) == 0
    assert relative_error(expected.to(torch.float8_e4m3fn), expected) == 0


def test_relative_error_of_what_is_no_answer_is_infinite() -> None:
    expected = torch.ones(2, 2, 2)
    assert relative_error(torch.full_like(expected, float("nan")), expected) == float("inf")
    assert relative_error(expected[:1], expected) == float("inf")
    assert relative_error(expected, torch.zeros_like(expected)) == float("inf")
    assert relative_error(torch.zeros_like(expected), torch.zeros_like(expected)) == 0
