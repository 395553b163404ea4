"""Values are read in every usual spelling, and refused in one line otherwise."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.domains import ANY, EMPTY, Domain
from selector.errors import UnknownFieldError, ValueRefusedError
from selector.fields import (
    BUILTIN,
    KV_DTYPES,
    Field,
    Vocabulary,
    capability_text,
    parse_capability,
    parse_capability_set,
    show,
    show_domain,
)

WORDS = Vocabulary()


def field(name: str) -> Field:
    return WORDS.fields[name]


@pytest.mark.parametrize(
    ("name", "raw", "read"),
    [
        ("mla", True, True),
        ("mla", "true", True),
        ("mla", "False", False),
        ("soft_cap", 30.0, True),
        ("soft_cap", "30.0", True),
        ("soft_cap", 0, False),
        ("soft_cap", 0.0, False),
        ("soft_cap", "true", True),
        ("soft_cap", False, False),
        ("head_size", 128, 128),
        ("head_size", 128.0, 128),
        ("head_size", "128", 128),
        ("block_size", None, "unset"),
        ("block_size", "unset", "unset"),
        ("sliding_window", None, "unset"),
        ("sliding_window", False, "unset"),
        ("sliding_window", "false", "unset"),
        ("sliding_window", "4096", 4096),
        ("kv_lora_rank", None, "absent"),
        ("kv_lora_rank", "absent", "absent"),
        ("kv_lora_rank", 0, 0),
        ("capability", "9.0", 900),
        ("capability", "sm_90a", 900),
        ("capability", 12.1, 1201),
        ("capability", 120, 1200),
        ("capability", "absent", "absent"),
        ("dtype", "bfloat16", "bfloat16"),
        ("dtype", "torch.bfloat16", "bfloat16"),
        ("dtype", "bf16", "bfloat16"),
        ("dtype", "half", "float16"),
        ("dtype", "torch.float8_e4m3fn", "fp8_e4m3"),
        ("kv_cache_dtype", "fp8_e4m3fn", "fp8_e4m3"),
        ("kv_cache_dtype", "AUTO", "auto"),
        ("kv_cache_dtype", None, "unset"),
        ("attn_type", "AttentionType.DECODER", "decoder"),
        ("attn_type", "ENCODER_ONLY", "encoder_only"),
        ("platform", "cuda", "cuda"),
    ],
)
def test_spellings(name: str, raw: object, read: object) -> None:
    found = field(name).read(raw)
    assert found == read
    assert type(found) is type(read)


def test_a_flag_for_a_number_means_any_such_number() -> None:
    assert field("sliding_window").read(True) == Domain.between(1, None)
    assert field("sliding_window").read("true") == Domain.between(1, None)


@pytest.mark.parametrize(
    ("name", "raw", "said"),
    [
        ("mla", "yes", "mla yes is not true or false"),
        ("mla", 1, "mla 1 is not true or false"),
        ("mla", None, "mla nothing is not true or false"),
        ("soft_cap", "big", "soft_cap big is not true or false"),
        ("head_size", 0, "head_size 0 is not a whole number of at least 1"),
        ("head_size", -64, "head_size -64 is not a whole number of at least 1"),
        ("head_size", 64.5, "head_size 64.5 is not a whole number of at least 1"),
        ("head_size", True, "head_size True is not a whole number of at least 1"),
        ("head_size", "9" * 30, "is not a whole number of at least 1"),
        ("head_size", "0x10", "head_size 0x10 is not a whole number of at least 1"),
        ("head_size", None, "head_size nothing is not a whole number of at least 1"),
        ("head_size", "unset", "head_size unset is not a whole number of at least 1"),
        ("head_size", [64], "head_size [64] is not a whole number of at least 1"),
        ("block_size", 0, "block_size 0 is not a whole number of at least 1, or unset"),
        ("block_size", "absent", "block_size absent is not a whole number"),
        ("kv_lora_rank", -1, "kv_lora_rank -1 is not a whole number of at least 0, or absent"),
        (
            "dtype",
            "bfloat17",
            "dtype bfloat17 is not float16, bfloat16, float32, fp8_e4m3, fp8_e5m2; "
            "did you mean bfloat16?",
        ),
        ("dtype", 16, "dtype 16 is not float16, bfloat16, float32, fp8_e4m3, fp8_e5m2"),
        ("dtype", None, "dtype nothing is not float16"),
        ("attn_type", "decode", "did you mean decoder?"),
        ("kv_cache_dtype", "fp8_ds_mlaa", "did you mean fp8_ds_mla?"),
        ("capability", "nine", 'compute capability "nine" is not major.minor; write "12.0"'),
        ("capability", "12", 'compute capability "12" is not major.minor; write "12.0"'),
        ("capability", True, 'compute capability "True" is not major.minor'),
    ],
)
def test_refusals(name: str, raw: object, said: str) -> None:
    with pytest.raises(ValueRefusedError, match=re.escape(said)) as raised:
        field(name).read(raw)
    assert "\n" not in str(raised.value)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.text("a\n\t "),
    lambda children: st.lists(children, max_size=2) | st.dictionaries(st.text(), children),
    max_leaves=4,
)


@given(st.sampled_from(BUILTIN), ANYTHING)
def test_whatever_is_read_is_a_value_of_the_field_and_reads_as_itself(
    field: Field, raw: object
) -> None:
    try:
        value = field.read(raw)
    except ValueRefusedError as refusal:
        said = str(refusal)
    else:
        said = ""
    assert len(said.splitlines()) <= 1
    if said:
        return
    domain = value if isinstance(value, Domain) else Domain.of(value)
    assert domain <= field.universe()
    if not isinstance(value, Domain) and field.type != "capability":
        assert field.read(value) == value


def test_fields_are_found_by_name_and_alias() -> None:
    assert WORDS.field("use_mla").name == "mla"
    assert WORDS.field("has_sink").name == "sink"
    assert WORDS.field("compute_capability").name == "capability"
    assert "use_mla" not in WORDS
    with pytest.raises(UnknownFieldError, match='unknown field "hed_size"; did you mean head_size'):
        WORDS.field("hed_size")
    with pytest.raises(UnknownFieldError) as raised:
        WORDS.field("x" * 900)
    assert len(str(raised.value)) < 120


def test_no_two_fields_share_a_spelling() -> None:
    spellings = [word for field in BUILTIN for word in (field.name, *field.aliases)]
    assert len(spellings) == len(set(spellings))


def test_what_silence_means() -> None:
    assert field("head_size").unstated() is None
    assert field("sink").unstated() == Domain.of(False)
    assert field("sliding_window").unstated() == Domain.of("unset")
    assert field("num_heads").unstated() == ANY
    for known in BUILTIN:
        assert (known.unstated() is None) == (known.role == "core")
        if known.off is not None:
            assert Domain.of(known.off) <= known.universe()
            assert known.role == "feature"


@pytest.mark.parametrize(
    ("text", "admitted", "refused"),
    [
        ("9.0", [900], [899, 901, 1000]),
        ("9.x", [900, 905, 999], [899, 1000]),
        ("12.10", [1210], [1201]),
        (">=8.0", [800, 900, 9900], [799]),
        (">= 8.6", [806], [805]),
        ("<9.0", [0, 800, 899], [900]),
        ("8.0..12.1", [800, 899, 1200, 1201], [799, 1202]),
    ],
)
def test_sets_of_capabilities(text: str, admitted: list[int], refused: list[int]) -> None:
    domain = parse_capability_set(text)
    assert all(domain.admits(code) for code in admitted)
    assert not any(domain.admits(code) for code in refused)
    assert not domain.admits("absent")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 9",
        "sm90",
        ">9.0",
        "<=9.0",
        "==9.0",
        "9.0-12.1",
        "9.0..",
        "9.x..12.x",
        "any",
        "9.X",
        "9.0\n",
        " 9.0",
        "900.0",
        "-9.0",
        "x.0",
    ],
)
def test_what_is_no_set_of_capabilities(text: str) -> None:
    with pytest.raises(ValueRefusedError, match=re.escape('is not "9.0", 9.x, ">=8.0"')):
        parse_capability_set(text)


@given(st.integers(2, 99), st.integers(0, 99))
def test_capabilities_survive_the_journey_to_text_and_back(major: int, minor: int) -> None:
    code = 100 * major + minor
    assert parse_capability(capability_text(code)) == code
    assert parse_capability_set(capability_text(code)) == Domain.of(code)
    if minor < 10:
        for spelling in (f"sm{major}{minor}", f"sm_{major}{minor}a", f"compute_{major}{minor}"):
            assert parse_capability(spelling) == code


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("capability", 1200, "12.0"),
        ("capability", 1210, "12.10"),
        ("sink", True, "true"),
        ("head_size", 32768, "32768"),
        ("seq_len", 32768, "32,768"),
        ("block_size", "unset", "unset"),
    ],
)
def test_values_in_words(name: str, value: int | str, shown: str) -> None:
    assert show(field(name), value) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("9.0", "9.0"),
        ("9.x", "9.x"),
        (">=8.0", "from 8.0"),
        ("<9.0", "below 9.0"),
        ("<8.6", "below 8.6"),
        ("8.0..12.1", "8.0–12.1"),
        ("9.0..9.0", "9.0"),
    ],
)
def test_capabilities_in_words(text: str, shown: str) -> None:
    assert show_domain(field("capability"), parse_capability_set(text)) == shown


def test_majors_that_follow_each_other_are_still_majors() -> None:
    majors = Domain.union(parse_capability_set(f"{major}.x") for major in (9, 10, 12))
    assert show_domain(field("capability"), majors) == "9.x, 10.x, 12.x"
    many = Domain.union(parse_capability_set(f"{major}.x") for major in range(7, 13))
    assert show_domain(field("capability"), many) == "7.0–12.x"


@pytest.mark.parametrize(
    ("name", "domain", "shown"),
    [
        ("head_size", EMPTY, "nothing"),
        ("head_size", ANY, "any"),
        ("head_size", Domain.of(128, 64), "64, 128"),
        ("head_size", Domain.between(None, 256), "up to 256"),
        ("head_size", Domain.between(1, 256), "up to 256"),
        ("head_size", Domain.between(64, 256), "64–256"),
        ("head_size", Domain.between(300, None), "from 300"),
        ("head_size", Domain.between(None, 256, 8), "multiples of 8 up to 256"),
        ("head_size", Domain.between(100, None, 8), "multiples of 8 from 104"),
        ("head_size", Domain.between(1, None), "any number"),
        (
            "block_size",
            Domain.between(None, None, 16) | Domain.of("unset"),
            "multiples of 16, unset",
        ),
        ("sliding_window", Domain.between(1, None) | Domain.of("unset"), "any"),
        ("query_len", Domain.between(2049, None), "from 2,049"),
        ("dtype", Domain.of("float16", "bfloat16"), "bfloat16, float16"),
        ("sink", Domain.of(False), "false"),
        ("sink", Domain.of(True, False), "any"),
        ("capability", Domain.of("absent") | parse_capability_set("12.1"), "12.1, absent"),
    ],
    ids=str,
)
def test_sets_in_words(name: str, domain: Domain, shown: str) -> None:
    assert show_domain(field(name), domain) == shown


def test_kv_cache_dtypes_are_spelled_once() -> None:
    assert len(KV_DTYPES) == len(set(KV_DTYPES))
    for name in KV_DTYPES:
        assert field("kv_cache_dtype").read(name) == name
