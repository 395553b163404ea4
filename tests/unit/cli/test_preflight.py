"""``attnsel preflight``: exit codes, forms, files, containers, several commands, odd ones."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from selector.schema import load_schema

from .conftest import Run

GOOD = "vllm serve zai-org/GLM-5.2-FP8 --tensor-parallel-size 8 --kv-cache-dtype fp8"
BAD = "vllm serve openai/gpt-oss-120b --kv-cache-dtype fp8"
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 2,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "torch_dtype": "bfloat16",
}


def valid(answer: object) -> None:
    Draft202012Validator(load_schema("preflight")).validate(answer)


class TestAnswers:
    def test_it_starts(self, run: Run) -> None:
        ran = run("preflight", "--gpu", "RTX PRO 6000", "--", *GOOD.split())
        assert ran.code == 0
        first, heading = ran.out.splitlines()[:2]
        assert first == "will start"
        assert heading == "glm-5.2-fp8 · RTX PRO 6000 Blackwell (12.0) · vllm 0.33.0 · tp 8"
        assert "kv_cache_dtype fp8 → fp8_ds_mla" in ran.out
        assert "kv_cache_dtype fp8 (--kv-cache-dtype)" in ran.out
        assert ran.err == ""

    def test_it_does_not(self, run: Run) -> None:
        ran = run("preflight", "--gpu", "A100", "--", *BAD.split())
        assert ran.code == 3
        first = ran.out.splitlines()[0]
        assert first.startswith("will not start: TRITON_ATTN is selected for 18 sliding layers and")
        assert "kv_cache_dtype fp8; accepts auto, bfloat16" in first
        assert "change  --kv-cache-dtype fp8 → auto\n" in ran.out
        assert "\n  vllm serve openai/gpt-oss-120b --kv-cache-dtype auto\n" in ran.out

    def test_several_refusals_and_a_pin(self, run: Run) -> None:
        line = "vllm serve Qwen/Qwen3-8B -tp 3 --attention-backend FLASHMLA"
        ran = run("preflight", "--gpu", "H200", "--", *line.split())
        assert ran.code == 3
        assert "(and 1 more refusal)" in ran.out.splitlines()[0]
        assert "change  -tp 3 → 2 and no --attention-backend FLASHMLA" in ran.out
        assert "--attention-backend FLASHMLA is refused" not in ran.out.splitlines()[0]

    def test_dead_ones_are_named_with_what_replaced_them(self, run: Run) -> None:
        line = "VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve Qwen/Qwen3-8B"
        ran = run("preflight", "--gpu", "H200", "--", *line.split())
        assert ran.code == 0
        assert "dead   variable VLLM_ATTENTION_BACKEND" in ran.out
        assert "use --attention-backend" in ran.out

    def test_nothing_helps(self, run: Run) -> None:
        line = "vllm serve deepseek-ai/DeepSeek-V3.2 -tp 8"
        ran = run("preflight", "--gpu", "A100", "--", *line.split())
        assert ran.code == 3
        assert "no setting that was tried helps; as it is, it runs on 9.0" in ran.out

    def test_a_device_that_nobody_knows_is_named(self, run: Run) -> None:
        ran = run("preflight", "--arch", "13.0", "--", "vllm", "serve", "Qwen/Qwen3-8B")
        assert "compute capability 13.0 is not known here" in ran.out

    def test_the_environment_does_not_count(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
        ran = run("preflight", "--arch", "9.0", "--", "vllm", "serve", "Qwen/Qwen3-8B")
        assert "batch_invariant" not in ran.out


class TestForms:
    @pytest.mark.parametrize(
        ("gpu", "line"),
        [
            ("RTX PRO 6000", GOOD),
            ("A100", BAD),
            ("A100", "vllm serve deepseek-ai/DeepSeek-V3.2 -tp 8"),
            ("H200", "vllm serve openai/whisper-large-v3"),
            ("H200", "vllm serve google/gemma-3-27b -tp 5 --attention-backend NONE_SUCH"),
            ("H200", "vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --spec-method mtp -sc.x 1"),
            ("H200", "vllm serve Qwen/Qwen3-8B -ac.use_cudnn_prefill true --nonsense"),
            ("H200", f"{BAD} -- {GOOD}"),
        ],
    )
    def test_json(self, run: Run, gpu: str, line: str) -> None:
        ran = run("preflight", "--gpu", gpu, "--format", "json", "--", *line.split())
        valid(ran.json)
        answers = ran.json.get("commands", [ran.json])
        assert ran.code == (0 if all(one["will_start"] for one in answers) else 3)

    def test_what_json_says(self, run: Run) -> None:
        ran = run("preflight", "--gpu", "A100", "--format", "json", "--", *BAD.split())
        assert ran.json["change"] == {
            "changes": [
                {
                    "flag": "--kv-cache-dtype",
                    "field": "kv_cache_dtype",
                    "before": "fp8",
                    "after": "auto",
                }
            ],
            "command": "vllm serve openai/gpt-oss-120b --kv-cache-dtype auto",
        }
        stages = {one["stage"] for one in ran.json["refusals"]}
        assert stages == {"constructor"}

    @pytest.mark.parametrize("line", [BAD, f"A=b {BAD} --served-model-name 'a b'", GOOD])
    def test_what_it_prints_starts(self, run: Run, line: str) -> None:
        ran = run("preflight", "--gpu", "A100", "--print", "--", *shlex.split(line))
        if ran.code == 0:
            assert ran.out == f"{line}\n"
            return
        printed = ran.out.rstrip("\n")
        assert "\n" not in printed
        if line == GOOD:  # no change helps: it is the same
            assert printed == line
            return
        again = run("preflight", "--gpu", "A100", "--print", "--", *shlex.split(printed))
        assert (again.code, again.out) == (0, ran.out)

    def test_a_long_command_is_printed_on_one_line(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        line = f"{BAD} {' '.join(f'--x{i} {i}' for i in range(60))}"
        monkeypatch.setenv("COLUMNS", "80")
        ran = run("preflight", "--gpu", "H200", "--print", "--", *line.split())
        assert ran.out == f"{line}\n"


class TestSources:
    def test_a_file_of_commands(self, run: Run, tmp_path: Path) -> None:
        path = tmp_path / "commands.txt"
        path.write_text(f"# CI\n\n{GOOD.replace('--kv', chr(92) + chr(10) + '  --kv')}\n{BAD}\n")
        ran = run("preflight", "--gpu", "A100", "--format", "json", "--file", path)
        assert ran.code == 3
        assert [one["model"] for one in ran.json["commands"]] == ["glm-5.2-fp8", "gpt-oss-120b"]
        text = run("preflight", "--gpu", "H200", "--file", path)
        assert "1 of 2  vllm serve zai-org/GLM-5.2-FP8" in text.out
        path.write_text(f"{GOOD}\nls\n")
        broken = run("preflight", "--gpu", "A100", "--file", path)
        assert broken.code == 2
        assert "commands.txt:2: " in broken.complaint
        path.write_text(f"{GOOD}\nvllm serve nobody/nothing\n")
        unknown = run("preflight", "--gpu", "A100", "--file", path)
        assert unknown.code == 2
        assert "commands.txt:2: " in unknown.complaint

    def test_a_container(self, run: Run, tmp_path: Path) -> None:
        path = tmp_path / "pod.yaml"
        container = {
            "image": "vllm/vllm-openai:v0.33.0",
            "args": ["--model", "openai/gpt-oss-120b", "--kv-cache-dtype=fp8"],
            "env": [
                {"name": "VLLM_USE_V1", "value": "1"},
                {"name": "HF_TOKEN", "value": "secret"},
            ],
        }
        path.write_text(json.dumps({"spec": {"containers": [container]}}))
        ran = run("preflight", "--gpu", "A100", "--container", path)
        assert ran.code == 3
        assert "--kv-cache-dtype=auto" in ran.out
        assert "  VLLM_USE_V1=1 " in ran.out
        assert "secret" not in ran.out
        path.write_text("{")
        assert run("preflight", "--gpu", "A100", "--container", path).code == 2

    def test_several_commands(self, run: Run) -> None:
        ran = run("preflight", "--gpu", "H200", "--", *GOOD.split(), "--", *BAD.split())
        assert "1 of 2" in ran.out
        assert "2 of 2" in ran.out
        wrapped = run("preflight", "--gpu", "H200", "--", "uv", "run", "--", *BAD.split())
        assert "1 of 2" not in wrapped.out
        assert wrapped.code == 0

    def test_a_quoted_line(self, run: Run) -> None:
        ran = run("preflight", "--gpu", "A100", "--", f"A=1 {BAD} | tee log")
        assert ran.code == 3


class TestModels:
    def test_a_folder_and_a_file(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps(CONFIG))
        for where in (tmp_path, tmp_path / "config.json"):
            ran = run("preflight", "--gpu", "H200", "--", "vllm", "serve", where)
            assert ran.code == 0
            assert "2 full layers" in ran.out

    def test_another_in_its_place(self, run: Run) -> None:
        words = ("--", "vllm", "serve", "acme/secret")
        unknown = run("preflight", "--gpu", "H200", *words)
        assert unknown.code == 2
        assert "give its config with --model PATH|PRESET" in unknown.complaint
        ran = run("preflight", "--gpu", "H200", "--model", "qwen3-8b", *words)
        assert ran.code == 0
        assert ran.out.splitlines()[1].startswith("qwen3-8b")

    def test_a_drafter_is_loaded_or_named(self, run: Run) -> None:
        line = "vllm serve meta-llama/Llama-3.3-70B -tp 4 --spec-tokens 2 --spec-model {}"
        ran = run("preflight", "--gpu", "H200", "--", *line.format("x/Llama-3.1-8B").split())
        assert "32 full layers of the drafter" in ran.out
        named = run("preflight", "--gpu", "H200", "--", *line.format("x/head").split())
        assert "the drafter x/head is not read" in named.out
        assert "no folder, config.json or preset" in named.out
        given = run(
            *("preflight", "--gpu", "H200", "--drafter", "llama-3.1-8b", "--"),
            *line.format("x/head").split(),
        )
        assert "32 full layers of the drafter" in given.out

    def test_a_drafter_that_cannot_be_read_says_why(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "head").mkdir()
        (tmp_path / "head" / "config.json").write_text("{")
        line = "vllm serve qwen3-8b --spec-method eagle --spec-model head"
        ran = run("preflight", "--gpu", "H200", "--", *line.split())
        assert "nothing is said of its layers: head/config.json:1:2: not JSON" in ran.out
        words = ("preflight", "--gpu", "H200", "--drafter", "head", "--", *line.split())
        assert run(*words).code == 2

    def test_overrides_of_the_config(self, run: Run) -> None:
        words = ("preflight", "--gpu", "H200", "--", "vllm", "serve", "qwen3-8b")
        ran = run(*words, "--hf-overrides", '{"head_dim": 96}')
        assert "head_size 96 (--hf-overrides.head_dim)" in ran.out
        odd = run(*words, "--hf-overrides.head_dim", "wide")
        assert odd.code == 2
        assert odd.complaint.startswith('with --hf-overrides, qwen3-8b: head_dim "wide" is not')


class TestConfigFile:
    @pytest.fixture(autouse=True)
    def here(self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)  # behind that of `run`
        lines = ("model: openai/gpt-oss-120b", "kv_cache_dtype: fp8", "tensor-parallel-size: 2")
        (tmp_path / "serve.yaml").write_text("\n".join(lines))

    def test_it_is_read(self, run: Run) -> None:
        ran = run("preflight", "--gpu", "H200", "--", "vllm", "serve", "--config", "serve.yaml")
        assert ran.code == 0
        assert "kv_cache_dtype fp8 (serve.yaml: kv_cache_dtype)" in ran.out

    def test_what_it_says_is_overruled(self, run: Run) -> None:
        words = ("preflight", "--gpu", "A100", "--print", "--")
        ran = run(*words, "vllm", "serve", "--config", "serve.yaml")
        line = "vllm serve --config serve.yaml --kv-cache-dtype auto"
        assert (ran.code, ran.out.rstrip()) == (3, line)
        assert run(*words, *line.split()).code == 0

    def test_one_that_is_not_here_is_named(self, run: Run, tmp_path: Path) -> None:
        words = ("preflight", "--gpu", "H200", "--", "vllm", "serve", "qwen3-8b", "--config")
        assert "no.yaml is not read: no such file" in run(*words, "no.yaml").out
        (tmp_path / "deep.yaml").mkdir()
        assert "deep.yaml is not read: is a directory" in run(*words, "deep.yaml").out

    def test_a_broken_one_is_one_line(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "odd.yaml").write_text("a: !!python/name:os.system\n")
        words = ("preflight", "--gpu", "H200", "--", "vllm", "serve", "m", "--config", "odd.yaml")
        ran = run(*words)
        assert ran.code == 2
        assert ran.complaint.startswith("odd.yaml:1:4: tag !!python/name:os.system is not read")

    def test_that_of_a_container_is_not_here(self, run: Run, tmp_path: Path) -> None:
        pod = '{"image": "vllm/vllm-openai", "args": ["qwen3-8b", "--config", "serve.yaml"]}'
        (tmp_path / "pod.json").write_text(pod)
        ran = run("preflight", "--gpu", "H200", "--container", "pod.json")
        assert "serve.yaml is not read: it is inside the container" in ran.out


class TestWrongUse:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--gpu", "H200"), "say which command"),
            (("--gpu", "H200", "--", "ls"), "is no serve command"),
            (("--gpu", "H200", "--", "vllm", "serve"), "no model is named"),
            (("--gpu", "MI300X", "--", *BAD.split()), "says nothing of rocm"),
            (("--arch", "cpu", "--", *BAD.split()), "says nothing of cpu"),
            (("--gpu", "X9000", "--", *BAD.split()), "unknown GPU"),
            (("--gpu", "H200", "--arch", "9.0", "--", *BAD.split()), "both name a device"),
            (("--gpu", "H200", "--file", "/nowhere"), "no such file"),
            (("--gpu", "H200", "--manifest", "vllm-9", "--", *BAD.split()), "vllm-9"),
            (("--gpu", "H200", "--model", "nothing", "--", *BAD.split()), "no preset"),
            (("--gpu", "H200", "--", *BAD.split(), "--block-size"), "--block-size"),
            (
                ("--gpu", "H200", "--print", "--format", "json", "--", *BAD.split()),
                "do not go together",
            ),
            (("--gpu", "H200", "--drafter", "x", "--", *BAD.split()), "no command has one"),
        ],
    )
    def test_one_line(self, run: Run, arguments: tuple[str, ...], said: str) -> None:
        ran = run("preflight", *arguments)
        assert ran.code == 2
        assert said in ran.complaint


WORDS = [
    "vllm", "serve", "Qwen/Qwen3-8B", "--", "-tp", "8", "3", "--kv-cache-dtype", "fp8", "A=b",
    "--attention-backend", "FLASHMLA", "--attention-config", '{"backend": "TRITON_ATTN"}', "{",
    "--speculative-config", '{"method": "mtp"}', "-dcp", "2", "--block-size", "64", "\n", "é",
    "--dtype", "half", "-ac.nonsense", "--hf-overrides", "docker", "run", "env", "sh", "-c",
    "--config", "a.yaml", "VLLM_USE_V1=1", "-", "", "'", "\u202e",
]  # fmt: skip


def test_any_words_have_an_answer_or_a_one_line_error(run: Run) -> None:
    dice = random.Random(11)
    codes = set()
    for turn in range(60):
        words = dice.choices(WORDS, k=dice.randrange(0, 9))
        if turn % 2:
            words = ["vllm", "serve", "Qwen/Qwen3-8B", *words]
        ran = run("preflight", "--gpu", "A100", "--", *words)
        codes.add(ran.code)
        if ran.code == 2:
            assert ran.complaint
        else:
            assert ran.out.startswith(("will start\n", "will not start: ", "1 of "))
    assert codes == {0, 2, 3}
