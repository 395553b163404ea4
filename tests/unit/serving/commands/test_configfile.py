"""A config file: laid before the words, overruled by them, never guessed at."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.serving.commands import Command, CommandError, read_command, split_line
from selector.serving.commands.configfile import read_config_file

FILE = b"""
model: owner/m
tensor-parallel-size: 8
kv_cache_dtype: fp8
enable-prefix-caching: false
kv-cache-dtype-skip-layers: [0, sliding_window]
attention-config:
  backend: TRITON_ATTN
  flash_attn_version: 3
speculative_config:
  method: mtp
  num_speculative_tokens: 2
served-model-name: [a, b]
strange: 1
"""


def read(line: str, text: bytes = FILE) -> Command:
    _, argv = split_line(line)
    return read_command(argv).with_config(read_config_file(text, "serve.yaml"))


def settings(command: Command) -> dict[str, Any]:
    return {s.field: s.value for s in command.settings}


class TestReading:
    def test_every_value_says_its_key(self):
        command = read("vllm serve --config serve.yaml")
        assert command.model == "owner/m"
        assert {s.field: s.origin for s in command.settings} == {
            "backend": "serve.yaml: attention-config.backend",
            "config_flash_attn_version": "serve.yaml: attention-config.flash_attn_version",
            "kv_cache_dtype": "serve.yaml: kv_cache_dtype",
            "config_kv_cache_dtype": "serve.yaml: kv_cache_dtype",
            "kv_cache_dtype_skip_layers": "serve.yaml: kv-cache-dtype-skip-layers",
            "tp_size": "serve.yaml: tensor-parallel-size",
            "prefix_caching": "serve.yaml: enable-prefix-caching",
            "speculative_method": "serve.yaml: speculative_config.method",
            "speculative_tokens": "serve.yaml: speculative_config.num_speculative_tokens",
        }
        assert command.setting("prefix_caching").value is False
        assert command.setting("kv_cache_dtype_skip_layers").value == ("0", "sliding_window")
        assert command.speculative == {"method": "mtp", "num_speculative_tokens": 2}
        assert [n.text for n in command.notes] == ["serve.yaml: strange is no flag of vLLM 0.33.0"]

    def test_the_line_counts_before_it(self):
        command = read("vllm serve other --config serve.yaml -tp 2 -ac.backend FLASH_ATTN")
        assert command.model == "other"
        assert command.setting("tp_size").origin == "-tp"
        assert command.setting("backend").value == "FLASH_ATTN"
        assert command.setting("config_flash_attn_version") is None  # its JSON is replaced whole
        lost = [n.text for n in command.notes if n.kind == "overridden"]
        assert sorted(lost) == [
            "serve.yaml: attention-config does not count: dotted keys spelled -ac replace it whole",
            "serve.yaml: tensor-parallel-size does not count: -tp comes after it",
        ]

    @pytest.mark.parametrize(
        ("text", "field", "value"),
        [
            (b"no-enable-prefix-caching: true", "prefix_caching", False),
            (b"no-enable-prefix-caching: false", "prefix_caching", None),
            (b"disable-sliding-window: false", "sliding_window", None),
            (b"kv-cache-dtype-skip-layers: []", "kv_cache_dtype_skip_layers", None),
            (b"max-model-len: 4k", "max_model_len", 4000),
            (b'hf-overrides: {"index_topk": 7}', "hf_overrides", {"index_topk": 7}),
        ],
    )
    def test_values(self, text: bytes, field: str, value: object):
        found = read("vllm serve m --config serve.yaml", text).setting(field)
        assert (found.value if found is not None else None) == value

    def test_the_model_has_one_name(self):
        command = read("vllm serve --config serve.yaml -tp 2", b"model_tag: m")
        assert command.model == "m"
        assert [n.text for n in command.notes] == [
            "serve.yaml: model_tag is no flag of vLLM 0.33.0; write model"
        ]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (b"", "serve.yaml: empty"),
            (b"a: 1\n b: 2", "serve.yaml:2:2: "),
            (b"a: !!python/object:os.system x", "serve.yaml:1:4: tag"),
            (b"- 1", "serve.yaml:1:1: "),
            (b"a: 1\na: 2", "serve.yaml:2:1: "),
            (b"a: yes", "serve.yaml:1:4: "),
            (b"a: " + b"[" * 500, "serve.yaml:1:"),
            (b"a: \xff", "serve.yaml:1:4: "),
            (b"kv-cache-dtype: [fp8]", "serve.yaml: kv-cache-dtype is a list"),
            (b"enforce-eager: 3", "serve.yaml: enforce-eager is 3, not true or false"),
            (b"tensor-parallel-size: two", 'serve.yaml: tensor-parallel-size: "two" is not'),
        ],
    )
    def test_errors_are_one_line_and_say_where(self, text: bytes, words: str):
        with pytest.raises(CommandError) as caught:
            read("vllm serve m --config serve.yaml", text)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)

    @given(st.binary(max_size=60))
    def test_any_bytes(self, data: bytes):
        said = ""
        try:
            read("vllm serve m --config serve.yaml", data)
        except CommandError as error:
            said = str(error)
        assert "\n" not in said


class TestNaming:
    def test_in_two_words_only(self):
        command = read_command(["vllm", "serve", "m", "--config=serve.yaml"])
        assert command.config_file is None
        assert [(n.kind, n.flag) for n in command.notes] == [("dead", "--config")]

    @pytest.mark.parametrize("line", ["--config a.yaml --config b.yaml", "--config a.json"])
    def test_what_the_engine_refuses(self, line: str):
        command = read_command(["vllm", "serve", "m", *line.split()])
        assert [n.kind for n in command.notes] == ["contradiction", "unmodelled"]

    def test_inside_a_shell(self):
        command = read("sh -c 'vllm serve m --config serve.yaml'")
        assert command.setting("tp_size").value == 8


class TestOverruling:
    LINE = "vllm serve m --config serve.yaml --port 80"

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("kv_cache_dtype", "bfloat16"),
            ("tp_size", 4),
            ("backend", "FLASHINFER"),
            ("config_flash_attn_version", 2),
            ("config_trtllm_attention", "use"),
            ("draft_backend", "TRITON_MLA"),
            ("prefix_caching", True),
            ("block_size", 32),
        ],
    )
    def test_one_field_changes_and_no_other(self, field: str, value: object):
        command = read(self.LINE)
        words = command.with_setting(field, value)
        again = command.again(words)
        assert words[:7] == list(command.argv)
        before, after = settings(command), settings(again)
        assert after[field] == value
        partner = "config_kv_cache_dtype"
        assert {**after, field: 0, partner: 0} == {**before, field: 0, partner: 0}
        assert again.with_setting(field, value) == words

    @pytest.mark.parametrize(
        "field", ["kv_cache_dtype", "backend", "tp_size", "config_flash_attn_version"]
    )
    def test_one_field_is_undone(self, field: str):
        command = read(self.LINE)
        again = command.again(command.with_setting(field, None))
        left = again.setting(field)
        assert left is None or left.value in ("auto", 1)
        assert settings(again).keys() >= settings(command).keys() - {field}

    def test_the_last_key_is_undone(self):
        command = read(self.LINE, b"attention-config: {backend: TRITON_ATTN}")
        words = command.with_setting("backend", None)
        assert words[-2:] == ["--attention-config", "{}"]
        assert command.again(words).setting("backend") is None

    def test_what_no_flag_undoes(self):
        command = read(self.LINE, b"block-size: 7")
        with pytest.raises(CommandError, match="take it out of the file"):
            command.with_setting("block_size", None)
