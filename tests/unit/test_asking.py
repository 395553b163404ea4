"""How a device, a layer, facts and a request become one question."""

from __future__ import annotations

import copy
import pickle
from itertools import product
from types import MappingProxyType
from typing import Any

import pytest

from selector import Device, Facts, Layer, Policy, Request
from selector.asking import BatchTotals, ask, mask_words, with_batch, with_request
from selector.domains import Domain
from selector.errors import ContradictionError, ValueRefusedError
from selector.manifest import Manifest, Measure
from selector.rules import Question

Build = Any  # the fixture of tests/conftest.py
H200 = Device("cuda", "9.0")
PROBE = {"probe": {"type": "boolean", "description": "A switch."}}
PROBE |= {"mylib": {"type": "version", "description": "A library."}}


@pytest.fixture
def manifest(build: Build) -> Manifest:
    derive = {
        "grade": {
            "first_match": [
                {"when": {"capability": "9.x", "probe": True}, "value": "fast_"},
                {"when": {"capability": "9.x"}, "value": "slow_"},
                {"value": "none_"},
            ]
        },
        "stage": {"first_match": [{"when": {"seq_len": {"max": 64}}, "value": 1}, {"value": 2}]},
    }
    result: Manifest = build.selector(facts=PROBE, derive=derive).manifest
    return result


def of(manifest: Manifest, layer: Layer | None = None, **facts: Any) -> Question:
    return ask(manifest, H200, layer or Layer.of(), Facts(facts))


# -- what is known without being said ------------------------------------------------------------


def test_what_silence_means(manifest: Manifest) -> None:
    question = of(manifest)
    assert question.known("platform") == "cuda"
    assert question.known("capability") == 900
    assert question.known("sink") is False
    assert question.known("sliding_window") == "unset"
    assert (question.known("mla"), question.known("sparse")) == (False, False)
    assert question.known("block_size") == "unset"
    assert question.known("v_head_size") == "unset"
    assert [question.known(f"{p}_size") for p in ("tp", "pp", "dcp", "pcp")] == [1, 1, 1, 1]
    assert question.known("num_reqs") == 1
    assert ask(manifest, H200, Layer.of(), Facts(), closed_world=True).known("num_reqs") == 1
    assert of(manifest, Layer.of(num_reqs=32)).known("num_reqs") == 32
    assert of(manifest, Layer.of(num_heads=8)).known("batch_num_heads") == 8
    assert of(manifest, Layer.of(num_heads=8, num_reqs=4)).known("batch_num_heads") == 32
    assert of(manifest, Layer.of(num_reqs=4)).known("batch_num_heads") is None
    for name in ("head_size", "dtype", "kv_cache_dtype", "num_heads", "dense_prefill", "seq_len"):
        assert question.known(name) is None
        assert question.text(name) == "unknown"
        assert question.possible(name) == manifest.vocabulary.fields[name].universe()


def test_a_device_without_compute_capability(manifest: Manifest) -> None:
    question = ask(manifest, Device("cpu"), Layer.of(), Facts())
    assert (question.known("platform"), question.known("capability")) == ("cpu", "absent")


def test_a_platform_that_does_not_exist_is_refused(manifest: Manifest) -> None:
    with pytest.raises(ValueRefusedError, match="platform vulkan is not cuda, rocm"):
        ask(manifest, Device("vulkan"), Layer.of(), Facts())


def test_a_capability_is_normalised_wherever_it_comes_from() -> None:
    assert Device("cuda", "sm_120a") == Device("cuda", "12.0")
    assert Device("cuda", "120").capability == "12.0"
    with pytest.raises(ValueRefusedError, match=r"is not major\.minor"):
        Device("cuda", "Hopper")


@pytest.mark.parametrize(
    "name", ["platform", "capability", "query_len", "has_context", "grade", "probe", "stage"]
)
def test_a_layer_does_not_say_what_others_say(manifest: Manifest, name: str) -> None:
    """It would be overruled in silence, or hold for some requests only."""
    value = {"platform": "rocm", "capability": 800, "query_len": 9}.get(name, True)
    with pytest.raises(ValueRefusedError, match=f"^{name} is no field of a layer"):
        of(manifest, Layer(MappingProxyType({name: value})))


# -- sizes ---------------------------------------------------------------------------------------


def test_sizes_that_follow(manifest: Manifest) -> None:
    question = of(manifest, Layer.of(num_heads=32, num_kv_heads=8))
    assert question.known("gqa_group") == 4
    question = of(manifest, Layer.of(mla=True, kv_lora_rank=512, qk_rope_head_dim=64))
    assert question.known("head_size") == 576
    latent = Layer.of(mla=False, kv_lora_rank=512, qk_rope_head_dim=64)
    assert of(manifest, latent).known("head_size") is None
    assert of(manifest, Layer.of(num_heads=32)).known("gqa_group") is None
    assert of(manifest, Layer.of(num_heads=None, num_kv_heads=8)).known("gqa_group") is None
    question = of(manifest, Layer.of(mla=True, kv_lora_rank=512, qk_rope_head_dim=64, head_size=64))
    assert question.known("head_size") == 64


def test_a_layer_says_its_kind_by_its_sizes(manifest: Manifest) -> None:
    question = of(manifest, Layer.of(kv_lora_rank=512, qk_rope_head_dim=64))
    assert (question.known("mla"), question.known("sparse")) == (True, False)
    assert question.known("head_size") == 576
    question = of(manifest, Layer.of(v_head_dim=128, index_topk=2048))
    assert (question.known("mla"), question.known("sparse")) == (True, True)
    question = of(manifest, Layer.of(v_head_dim=128, index_topk=2048, sparse=False))
    assert question.known("sparse") is False
    assert of(manifest, Layer.of(index_topk=2048)).known("sparse") is False  # it has no latent
    assert of(manifest, Layer.of(kv_lora_rank=None)).known("mla") is False


def test_heads_of_the_model_and_of_a_rank(manifest: Manifest) -> None:
    question = of(manifest, Layer.of(num_heads=16, num_kv_heads=4, tp_size=8))
    assert question.known("total_num_heads") == 128
    assert question.known("model_num_heads") == 16
    assert question.known("heads_divide") is True
    said = {"total_num_heads": 40, "total_num_kv_heads": 2, "tp_size": 3}
    question = of(manifest, Layer.of(num_heads=16, **said))
    assert question.known("model_num_heads") == 13  # what the model says, not the layer
    assert question.known("heads_divide") is True  # at least one KV head a rank
    said = {"total_num_heads": 40, "total_num_kv_heads": 12, "tp_size": 2}
    assert of(manifest, Layer.of(**said)).known("heads_divide") is False  # 20 over 6
    assert of(manifest, Layer.of(mla=True, **said)).known("heads_divide") is True  # one latent
    unknown = Layer.of(num_heads=16, total_num_heads=Domain.between(1, None))
    assert of(manifest, unknown).known("model_num_heads") is None
    assert of(manifest, Layer.of(total_num_heads=None)).known("model_num_heads") == "absent"
    assert of(manifest, Layer.of()).known("heads_divide") is None


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ({"num_heads": 9, "num_kv_heads": 2}, "num_heads 9 is not a multiple of num_kv_heads 2"),
        (
            {"num_heads": 8, "num_kv_heads": 2, "gqa_group": 3},
            "num_heads 8 is not num_kv_heads 2 times gqa_group 3",
        ),
    ],
)
def test_sizes_that_contradict(manifest: Manifest, layer: dict[str, int], said: str) -> None:
    with pytest.raises(ContradictionError, match=f"^{said}$"):
        of(manifest, Layer.of(**layer))


@pytest.mark.parametrize("flag", ["dcp", "pcp"])
def test_context_parallelism_follows_from_its_size(manifest: Manifest, flag: str) -> None:
    size = f"{flag}_size"
    assert of(manifest, Layer.of(**{size: 1})).known(flag) is False
    assert of(manifest, Layer.of(**{size: 2})).known(flag) is True
    assert of(manifest, Layer.of(**{flag: True})).known(flag) is True  # the space rules object
    for sizes, flags in (((1, 2), {True, False}), ((2, 4), {True}), ((1,), {False})):
        layer = Layer(MappingProxyType({size: Domain.of(*sizes)}))
        assert of(manifest, layer).possible(flag) == Domain.of(*flags)


# -- facts, derived values, a closed world -------------------------------------------------------


def test_probes_are_fields_and_versions_are_not(manifest: Manifest) -> None:
    assert of(manifest).known("probe") is None
    assert of(manifest, probe=True).known("probe") is True
    assert of(manifest, probe=None).known("probe") is False
    assert "mylib" not in manifest.vocabulary


def test_derived_values_follow_from_what_is_known(manifest: Manifest) -> None:
    assert of(manifest, probe=True).known("grade") == "fast_"
    assert of(manifest, probe=False).known("grade") == "slow_"
    assert of(manifest).possible("grade") == Domain.of("fast_", "slow_")
    assert of(manifest).text("grade") == "fast_, slow_"
    cpu = ask(manifest, Device("cpu"), Layer.of(), Facts())
    assert cpu.known("grade") == "none_"


def test_in_a_closed_world_what_is_unknown_is_not_there(manifest: Manifest) -> None:
    question = ask(manifest, H200, Layer.of(), Facts(), closed_world=True)
    assert question.known("index_topk") == "absent"
    assert question.known("num_heads") == "unset"
    assert question.known("dense_prefill") is False
    assert question.known("probe") is False
    assert question.known("grade") == "slow_"
    assert question.known("dtype") is None  # there is no such thing as no dtype


def test_the_request_is_unknown_even_in_a_closed_world(manifest: Manifest) -> None:
    question = ask(manifest, H200, Layer.of(), Facts(), closed_world=True)
    half = with_request(manifest, question, Request(query_len=8))
    assert half.known("has_context") is None
    assert half.possible("seq_len") == Domain.between(8, None)


# -- requests ------------------------------------------------------------------------------------


def test_a_request_with_both_lengths(manifest: Manifest) -> None:
    question = with_request(manifest, of(manifest), Request(8, 64))
    names = ("query_len", "seq_len", "context_len", "has_context", "num_prefills", "stage")
    assert [question.known(n) for n in names] == [8, 64, 56, True, 1, 1]
    question = with_request(manifest, of(manifest), Request(65, 65))
    assert [question.known(n) for n in names] == [65, 65, 0, False, 1, 2]


def test_a_length_that_is_unknown_is_bounded_by_the_other(manifest: Manifest) -> None:
    half = with_request(manifest, of(manifest), Request(query_len=65))
    assert half.possible("seq_len") == Domain.between(65, None)
    assert (half.known("stage"), half.known("has_context")) == (2, None)
    half = with_request(manifest, of(manifest), Request(seq_len=64))
    assert half.possible("query_len") == Domain.between(1, 64)
    one = with_request(manifest, of(manifest), Request(seq_len=1))
    assert one.known("query_len") == 1
    none = with_request(manifest, of(manifest), Request())
    assert none.known("query_len") is None
    assert none.possible("stage") == Domain.of(1, 2)
    assert none.known("num_prefills") == 1


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ((0, 1), "query_len 0 is not at least 1"),
        ((-1, None), "query_len -1 is not at least 1"),
        ((None, 0), "seq_len 0 is not at least 1"),
        ((2, 1), "query_len 2 is longer than seq_len 1"),
        ((1, 1, -1), "speculative_tokens -1 is negative"),
    ],
)
def test_requests_that_cannot_be(lengths: tuple[int, ...], said: str) -> None:
    with pytest.raises(ContradictionError, match=f"^{said}$"):
        Request(*lengths)


HUGE = [pytest.param(10**5000, id="huge"), pytest.param(-(10**5000), id="huge and negative")]


@pytest.mark.parametrize("value", [1.0, "1", True, [1], 10**16, *HUGE])
@pytest.mark.parametrize("name", ["query_len", "seq_len", "speculative_tokens"])
def test_lengths_that_are_no_numbers(name: str, value: Any) -> None:
    with pytest.raises(ValueRefusedError, match=f"^{name} .* is not a whole number"):
        Request(**{name: value})


class Whole:
    """A number of another library, as numpy has them."""

    def __index__(self) -> int:
        return 8


def test_whole_numbers_of_other_libraries_are_taken() -> None:
    assert Request(Whole(), Whole(), Whole()) == Request(8, 8, 8)  # type: ignore[arg-type]
    assert type(Request(Whole()).query_len) is int  # type: ignore[arg-type]
    assert Layer.of(head_size=Whole()) == Layer.of(head_size=8)


def test_a_batch_is_its_longest_prefills(manifest: Manifest) -> None:
    question = with_batch(manifest, of(manifest), BatchTotals(3, 8, 64, 0))
    names = ("query_len", "seq_len", "context_len", "has_context", "num_prefills", "stage")
    assert [question.known(n) for n in names] == [8, 64, 0, False, 3, 1]


def test_words_of_a_mask() -> None:
    """Rows in whole tiles, times the words of a row, aligned."""
    measure = Measure("words", 128, 256, 4)
    for totals, words in (
        (BatchTotals(1, 1, 1, 0), 128 * 4),
        (BatchTotals(1, 128, 128, 0), 128 * 4),
        (BatchTotals(1, 128, 4224, 4096), 128 * 128),
        (BatchTotals(1, 128, 4225, 4097), 128 * 132),
        (BatchTotals(1, 129, 129, 0), 256 * 8),
        (BatchTotals(3, 257, 257, 0), 3 * 512 * 12),
    ):
        assert mask_words(measure, totals) == words


# -- layers --------------------------------------------------------------------------------------


def test_possible_values_are_given_as_a_set() -> None:
    layer = Layer.of(
        head_size=Domain.of(64, 128), dtype=Domain.of("float16"), sink=Domain.of(False)
    )
    assert layer.get("head_size") == Domain.of(64, 128)
    assert layer.get("dtype") == "float16"
    assert layer.get("sink") is False
    with pytest.raises(ValueRefusedError, match=r"^head_size 0, 64 is not a whole number"):
        Layer.of(head_size=Domain.of(0, 64))
    with pytest.raises(ValueRefusedError, match=r"^dtype nothing is not float16"):
        Layer.of(dtype=Domain.of())


def test_a_field_given_twice_must_agree() -> None:
    assert Layer.of(sliding_window=128, has_sliding_window=True).get("sliding_window") == 128
    assert Layer.of(has_sliding_window=True, sliding_window=128).get("sliding_window") == 128
    assert Layer.of(sink=True, has_sink=True).get("sink") is True
    for layer in (
        {"sliding_window": 128, "has_sliding_window": False},
        {"sink": True, "has_sink": False},
        {"head_size": 64, "head_dim": 128},
    ):
        with pytest.raises(ContradictionError, match="is given twice, with different values"):
            Layer.of(**layer)


@pytest.mark.parametrize(("name", "value"), [*product(["num_heads", "block_size"], [True, "true"])])
def test_a_flag_is_no_size(name: str, value: Any) -> None:
    """It is for ``has_sliding_window``, and for no count."""
    with pytest.raises(ValueRefusedError, match=f"^{name} "):
        Layer.of(**{name: value})


@pytest.mark.parametrize("value", [10**15 + 1, 1e300, *HUGE])
def test_numbers_beyond_reason_are_refused(value: float) -> None:
    with pytest.raises(ValueRefusedError, match=r"^head_size .* is not a whole number") as caught:
        Layer.of(head_size=value)
    assert len(str(caught.value)) < 200


def test_equal_layers_facts_and_policies_are_one_key(build: Build) -> None:
    """Engines keep what they bound by what they bound it to."""
    one, other = Layer.of(head_size=64, sink=True), Layer.of(has_sink=True, head_dim=64)
    assert {one: 1}[other] == 1
    some = Layer.of(head_size=Domain.of(64, 65))
    assert {some: 1}[Layer.of(head_size=Domain.between(64, 65))] == 1
    assert hash(Facts({"a": None, "b": "1"})) == hash(Facts({"b": "1", "a": None}))
    assert {Policy({"a": "b"}, "c"): 1}[Policy({"a": "b"}, backend="c")] == 1
    assert Layer.of(head_size=64) != Layer.of(head_size=128)


def test_questions_and_answers_travel_to_other_processes(build: Build) -> None:
    layer = Layer.of(**dict(build.layer().fields), num_heads=Domain.of(8, 16))
    facts, policy = Facts({"a": None}), Policy({"a": "b"}, "c", "d", "e")
    answer = build.selector().bind("9.0", layer).resolve(1, 1)
    for value in (layer, facts, policy, answer, Request(1, 2, 3), Device("cuda", "9.0")):
        assert pickle.loads(pickle.dumps(value)) == value
        assert copy.deepcopy(value) == value


# -- what stays unknown --------------------------------------------------------------------------


def test_an_unknown_size_leaves_the_kind_unknown(manifest: Manifest) -> None:
    some = Domain.between(0, None) | Domain.of("absent")
    question = of(manifest, Layer.of(kv_lora_rank=512, index_topk=some))
    assert (question.known("mla"), question.known("sparse")) == (True, None)
    question = of(manifest, Layer.of(kv_lora_rank=some))
    assert (question.known("mla"), question.known("sparse")) == (None, False)
    assert of(manifest, Layer.of(mla=False, kv_lora_rank=some)).known("mla") is False


def test_heads_divide_as_many_kv_heads_as_the_kind_has(manifest: Manifest) -> None:
    layer = Layer.of(kv_lora_rank=Domain.of(512, "absent"), num_heads=6, num_kv_heads=3)
    assert of(manifest, layer).known("heads_divide") is None
    assert of(manifest, layer.replace(mla=True)).known("heads_divide") is True
