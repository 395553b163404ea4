import pytest

from selector.errors import AttnselError, ContradictionError, ValueRefusedError
from selector.models import load_model, presets, shard
from selector.values import Origin


def heads(model) -> tuple[object, object]:
    layer = model.groups[0].layer
    return layer.get("num_heads"), layer.get("num_kv_heads")


@pytest.mark.parametrize(
    ("preset", "tp_size", "expected"),
    [
        ("llama-3.1-8b", 1, (32, 8)),
        ("llama-3.1-8b", 4, (8, 2)),
        ("llama-3.1-8b", 8, (4, 1)),
        ("llama-3.1-8b", 16, (2, 1)),
        ("qwen2.5-7b", 7, ValueRefusedError),
        ("qwen2.5-7b", 28, (1, 1)),
        ("glm-5.2-fp8", 8, (8, 1)),
        ("deepseek-v3", 128, (1, 1)),
    ],
)
def test_heads_per_rank(preset, tp_size, expected):
    model = load_model(preset)
    if isinstance(expected, tuple):
        assert heads(shard(model, tp_size)) == expected
    else:
        with pytest.raises(expected):
            shard(model, tp_size)


@pytest.mark.parametrize("preset", presets())
def test_ranks_hold_what_the_model_has(preset):
    model = load_model(preset)
    for tp_size in (1, 2, 3, 4, 8, 16, 32, 64):
        try:
            ranks = shard(model, tp_size)
        except AttnselError:
            continue
        for before, after in zip(model.groups, ranks.groups, strict=True):
            one = after.layer
            assert one.get("num_heads") * tp_size == before.layer.get("num_heads")
            assert one.get("num_kv_heads") * tp_size >= before.layer.get("num_kv_heads")
            assert one.get("gqa_group") * one.get("num_kv_heads") == one.get("num_heads")
            assert one.get("tp_size") == tp_size
            assert after.origins["tp_size"] is Origin.FLAG
            unchanged = set(one.fields) - {"num_heads", "num_kv_heads", "gqa_group", "tp_size"}
            assert {k: one.fields[k] for k in unchanged} == {
                k: before.layer.fields[k] for k in unchanged
            }


def test_errors_name_both_numbers_and_one_that_fits():
    with pytest.raises(ValueRefusedError) as caught:
        shard(load_model("glm-5.2-fp8"), 12)
    assert str(caught.value) == (
        "glm-5.2-fp8: sparse layers: 64 query heads cannot be divided over tensor parallel size "
        "12; nearest that fits: 8"
    )
    with pytest.raises(ValueRefusedError, match=r"4 KV heads .* tensor parallel size 14"):
        shard(load_model("qwen2.5-7b"), 14)


@pytest.mark.parametrize("tp_size", [0, -1, True, "8", 2.0, None])
def test_no_such_number_of_ranks(tp_size):
    with pytest.raises(ValueRefusedError, match="is not a whole number of at least 1"):
        shard(load_model("llama-3.1-8b"), tp_size)


def test_only_once():
    once = shard(load_model("llama-3.1-8b"), 4)
    assert shard(once, 4) == once
    with pytest.raises(ContradictionError, match="per rank of tensor parallel size 4 already"):
        shard(once, 2)


def test_kv_heads_on_several_ranks_are_said():
    assert shard(load_model("llama-3.1-8b"), 16).notes == (
        "full layers: each of 8 KV heads is on 2 ranks",
    )
    assert shard(load_model("llama-3.1-8b"), 8).notes == ()
    assert shard(load_model("deepseek-v3"), 8).notes == load_model("deepseek-v3").notes
