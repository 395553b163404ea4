"""Serve commands: what is read from real lines, laws of mending, and hostile ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.serving.commands import (
    Command,
    CommandError,
    quoted,
    read_command,
    read_container,
    split_line,
    table,
)

CASES = [
    json.loads(line) for line in Path(__file__).with_name("commands.jsonl").read_text().splitlines()
]
GOOD = [case for case in CASES if "error" not in case]
BAD = [case for case in CASES if "error" in case]


def read(line: str) -> Command:
    variables, argv = split_line(line)
    return read_command(argv, variables)


def plain(command: Command) -> dict[str, Any]:
    return json.loads(json.dumps({s.field: s.value for s in command.settings}))


def named(cases: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


class TestRealLines:
    def test_at_least_forty(self):
        assert len(CASES) >= 40

    @named(GOOD)
    def test_read(self, case: dict[str, Any]):
        command = read(case["line"])
        assert command.model == case["model"]
        assert plain(command) == case["settings"]
        assert [[n.kind, n.flag] for n in command.notes] == case["notes"]
        assert command.speculative == case.get("speculative")
        assert command.hf_overrides == case.get("hf_overrides")
        assert all("\n" not in note.text for note in command.notes)

    @named(BAD)
    def test_refused(self, case: dict[str, Any]):
        with pytest.raises(CommandError) as caught:
            read(case["line"])
        text = str(caught.value)
        assert "\n" not in text
        for words in case["error"]:
            assert words in text
        assert caught.value.code == "COMMAND"

    @named(GOOD)
    def test_settings_say_where_they_stand(self, case: dict[str, Any]):
        command = read(case["line"])
        for setting in command.settings:
            if setting.position >= 0:
                word = command.argv[setting.position]
                assert word.startswith(setting.origin.split(".")[0])
            else:
                assert setting.origin.startswith("variable ")


class TestMending:
    @named(GOOD)
    def test_what_is_said_already_changes_nothing(self, case: dict[str, Any]):
        command = read(case["line"])
        if any(note.kind == "contradiction" for note in command.notes):
            return
        for setting in command.settings:
            if setting.position < 0 or setting.field in ("dcp", "pcp", "kv_connector"):
                continue
            mended = command.with_setting(setting.field, setting.value)
            again = read_command(mended, command.variables)
            assert again.settings == command.settings
            assert again.with_setting(setting.field, setting.value) == mended

    @named(GOOD)
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("kv_cache_dtype", "bfloat16"),
            ("backend", "TRITON_ATTN"),
            ("tp_size", 16),
            ("block_size", 128),
            ("config_flash_attn_version", 4),
            ("config_trtllm_attention", "use"),
            ("prefix_caching", False),
            ("sliding_window", "unset"),
            ("draft_backend", "TRITON_MLA"),
            ("kv_cache_dtype_skip_layers", ("3", "4")),
            ("config_force_mqa", True),
            ("hf_overrides", {"index_topk": 7}),
        ],
    )
    def test_read_again(self, case: dict[str, Any], field: str, value: Any):
        command = read(case["line"])
        mended = command.with_setting(field, value)
        again = read_command(mended, command.variables, bare=command.start == 0)
        assert again.setting(field).value == value
        flags = {row.name for row in table().setters(field)}
        partners = {name for row in table().flags if row.name in flags for name in row.sets}
        before, after = plain(command), plain(again)
        for name in (before.keys() | after.keys()) - partners:
            assert before.get(name) == after.get(name)
        assert again.model == command.model
        assert again.with_setting(field, value) == mended
        assert not [n for n in again.notes if n.kind == "contradiction" and n.flag in flags]

    @named(GOOD)
    def test_taken_away(self, case: dict[str, Any]):
        command = read(case["line"])
        for setting in command.settings:
            if setting.position < 0:
                continue
            mended = command.with_setting(setting.field, None)
            again = read_command(mended, command.variables)
            assert again.setting(setting.field) is None
            assert again.with_setting(setting.field, None) == mended

    @pytest.mark.parametrize(
        ("line", "field", "value", "mended"),
        [
            ("vllm serve m -tp=8 --x  1", "tp_size", 4, "vllm serve m -tp=4 --x 1"),
            ("vllm serve m -qfp8", "quantization", "awq", "vllm serve m -qawq"),
            ("vllm serve m --block-size 16", "block_size", None, "vllm serve m"),
            (
                "vllm serve m",
                "backend",
                "FLASHINFER",
                "vllm serve m --attention-backend FLASHINFER",
            ),
            (
                "vllm serve m -ac.backend=A -tp 2",
                "backend",
                "B",
                "vllm serve m -ac.backend=B -tp 2",
            ),
            (
                "vllm serve m --attention-backend A -ac.backend B",
                "backend",
                "C",
                "vllm serve m --attention-backend C",
            ),
            (
                'vllm serve m -ac \'{"backend":"A"}\'',
                "config_flash_attn_version",
                2,
                'vllm serve m -ac \'{"backend": "A", "flash_attn_version": 2}\'',
            ),
            (
                "vllm serve m -ac.backend A",
                "config_flash_attn_version",
                2,
                "vllm serve m -ac.backend A -ac.flash_attn_version 2",
            ),
            (
                "vllm serve m -ac.backend_per_kind.a A -tp 2 -ac.backend_per_kind.b B",
                "backend_per_kind",
                {"c": "C"},
                'vllm serve m -tp 2 -ac.backend_per_kind \'{"c": "C"}\'',
            ),
            (
                "docker run vllm/vllm-openai:v1 --model m",
                "kv_cache_dtype",
                "fp8",
                "docker run vllm/vllm-openai:v1 --model m --kv-cache-dtype fp8",
            ),
            (
                "vllm serve m --enable-prefix-caching",
                "prefix_caching",
                False,
                "vllm serve m --disable-prefix-caching",
            ),
        ],
    )
    def test_where(self, line: str, field: str, value: Any, mended: str):
        assert quoted(read(line).with_setting(field, value)) == mended

    @pytest.mark.parametrize(
        ("field", "value", "said"),
        [
            ("batch_invariant", True, "set by the variable VLLM_BATCH_INVARIANT"),
            ("head_size", 64, "no flag sets head_size"),
            ("kv_connector", True, "cannot set kv_connector"),
            ("tp_size", 0, "at least 1"),
            ("kv_cache_dtype", "int3", "--kv-cache-dtype"),
        ],
    )
    def test_refused(self, field: str, value: Any, said: str):
        with pytest.raises(CommandError, match=said):
            read("vllm serve m").with_setting(field, value)


class TestProgram:
    @pytest.mark.parametrize(
        "line",
        [
            "python -m sglang.launch_server --model-path m --dtype half",
            "sglang serve m --dtype half",
            "torchrun --dtype half",
            "vllm --version",
            "vllm",
            "docker run ubuntu --dtype half",
            "docker run",
            "sh script.sh",
            "",
        ],
    )
    def test_others(self, line: str):
        with pytest.raises(CommandError):
            read(line)

    @pytest.mark.parametrize(
        "line",
        [
            "owner/m -tp 2",
            "-tp 2 --model owner/m",
            "vllm --version && vllm serve owner/m -tp 2",
            "taskset -c 0-3 numactl --membind 0 timeout 1h /opt/venv/bin/vllm serve owner/m -tp 2",
            "podman run -d -e A=b img /usr/bin/env B=c vllm serve owner/m -tp 2",
            "conda run -n env vllm serve owner/m -tp 2",
            "bash -lc 'source x && exec vllm serve owner/m -tp 2'",
            "python vllm/entrypoints/openai/api_server.py --model owner/m -tp 2",
        ],
    )
    def test_started_so(self, line: str):
        command = read(line)
        assert (command.model, plain(command)) == ("owner/m", {"tp_size": 2})


CONTAINER = """
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
      - name: proxy
        command: [envoy, -c, x]
      - name: server
        image: vllm/vllm-openai:v0.33.0
        args: [--model, m, "--tensor-parallel-size=$(TP)", --kv-cache-dtype, fp8]
        env:
        - {name: TP, value: "4"}
        - {name: VLLM_BATCH_INVARIANT, value: "1"}
        - {name: TOKEN, valueFrom: {secretKeyRef: {name: a, key: b}}}
"""


class TestContainers:
    def test_of_a_deployment(self):
        (command,) = read_container(CONTAINER)
        assert plain(command) == {
            "kv_cache_dtype": "fp8",
            "config_kv_cache_dtype": "fp8",
            "tp_size": 4,
            "batch_invariant": True,
        }
        assert command.notes == ()

    @pytest.mark.parametrize(
        ("env", "flags"),
        [
            ("env: [{name: VLLM_BATCH_INVARIANT, valueFrom: {}}]", ["VLLM_BATCH_INVARIANT"]),
            ("env: [{name: VLLM_API_KEY, valueFrom: {secretKeyRef: {name: a}}}]", []),
            ("envFrom: [{configMapRef: {name: a}}]", ["envFrom"]),
            ("env_file: .env", ["env_file"]),
            ("envFrom: []\nenv: 3", []),
        ],
    )
    def test_variables_from_elsewhere_are_named(self, env: str, flags: list[str]):
        (command,) = read_container(f"image: vllm/vllm-openai\nargs: [m, -tp, '2']\n{env}")
        assert [(note.kind, note.flag) for note in command.notes] == [
            ("unmodelled", flag) for flag in flags
        ]

    @pytest.mark.parametrize(
        "text",
        [
            '["--model", "m", "-tp", "2"]',
            '["m", "-tp", "2"]',
            '{"args": ["m", "-tp", "2"]}',
            "image: vllm/vllm-openai\ncommand: --model m -tp 2\nenvironment: [A=1]",
            "entrypoint: [vllm, serve]\ncommand: [m, -tp, '2']",
            '{"command": ["vllm", "serve"], "args": ["m", "-tp", "2"]}',
            '{"command": ["sh", "-c"], "args": ["exec vllm serve m -tp 2"]}',
            'command: ["/bin/bash", "-lc", "export A=1\\nvllm serve m -tp 2"]',
            "command: [sh, -c]\nargs:\n- |\n  vllm serve m \\\n    -tp 2\n",
        ],
    )
    def test_in_its_spellings(self, text: str):
        (command,) = read_container(text)
        assert (command.model, plain(command)) == ("m", {"tp_size": 2})

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("{", r"line \d, column"),
            ("a: b", "no container"),
            ("command: [nginx]", "no serve command"),
            ("args: [--upstream=http://127.0.0.1, --port, '80']", "no serve command"),
            ("{image: lmsysorg/sglang, args: [--dtype, half]}", "no serve command"),
            ("args: [m, -tp, [2]]", "quote it"),
            ("a: &x [1]\nb: *x", "aliases"),
            ("[" * 100, "too deep"),
            ("x" * ((1 << 20) + 1), "too long"),
        ],
    )
    def test_refused(self, text: str, said: str):
        with pytest.raises(CommandError, match=said) as caught:
            read_container(text)
        assert "\n" not in str(caught.value)


SPELLINGS = [
    name
    for row in table().flags
    if row.kind in ("flag", "key")
    for name in (*row.spellings, *row.negations)
]
WORDS = st.one_of(
    st.sampled_from(SPELLINGS),
    st.sampled_from(SPELLINGS).map(lambda name: name + "="),
    st.sampled_from(SPELLINGS).map(lambda name: name[: len(name) // 2]),
    st.sampled_from(["--", "-", "m", "8", "fp8", "{}", '{"backend": 1}', "[", "None", "$X", "-1"]),
    st.sampled_from(["--config", "--model", "-O3", "-.5", "-.", "--.", "--a.b.c", "-ac.", "+"]),
    st.text(max_size=8),
)


def one_lined(error: CommandError) -> None:
    assert "\n" not in str(error)


def survives(line: str) -> None:
    try:
        command = read(line)
    except CommandError as error:
        one_lined(error)
    else:
        assert isinstance(command, Command)


class TestHostile:
    @settings(max_examples=400, deadline=None)
    @given(st.lists(WORDS, max_size=9))
    def test_any_words(self, words: list[str]):
        try:
            command = read_command(["vllm", "serve", "m", *words])
        except CommandError as error:
            one_lined(error)
            return
        for setting in command.settings:
            try:
                mended = command.with_setting(setting.field, setting.value)
            except CommandError:
                continue
            assert read_command(mended).setting(setting.field).value == setting.value

    @pytest.mark.parametrize("key", ["command", "args", "entrypoint"])
    @pytest.mark.parametrize("held", ["true", "7", "{a: b}"])
    def test_words_of_a_container_are_a_list(self, key: str, held: str):
        other = "args" if key != "args" else "command"
        with pytest.raises(CommandError, match=f"{key}: .* is neither text nor a list") as caught:
            read_container(f"{{{other}: [vllm, serve, m], {key}: {held}}}")
        one_lined(caught.value)

    @settings(max_examples=300, deadline=None)
    @given(st.text(max_size=60))
    def test_any_text(self, text: str):
        survives(text)
        survives("vllm serve m " + text)

    @settings(max_examples=200, deadline=None)
    @given(st.text(alphabet="vlm serve-{}[]:,\"'&*!|>\n 1", max_size=60))
    def test_any_container(self, text: str):
        try:
            read_container(text)
        except CommandError as error:
            one_lined(error)

    @pytest.mark.parametrize(
        "line",
        [
            "vllm serve m --attention-config '" + "[" * 100_000 + "'",
            "vllm serve m --attention-config '" + '\\"' * 100_000 + "'",
            'vllm serve m --attention-config \'{"a": ' + "9" * 100_000 + "}'",
            "vllm serve m -tp " + "9" * 100_000,
            "vllm serve m " + "--" + "a." * 50_000 + "b 1",
            "vllm serve m " + "-ac.a 1 " * 5_000,
            "vllm serve m --attention-config " + '{"backend": 1}' * 5_000,
            "env " * 10_000 + "vllm serve m",
            "vllm serve m " + "--unknown-flag x " * 2_000,
            "$" * 100_000,
            '"' + "\\" * 100_000,
        ],
        ids=range(11),
    )
    def test_large(self, line: str):
        survives(line)
