import io
import json

import pytest

from selector.errors import AttnselError, UnknownModelError
from selector.models import load_model, presets
from selector.models.loading import MAX_BYTES

LLAMA = {"model_type": "llama", "num_attention_heads": 8, "num_hidden_layers": 2}


def refusal(ref) -> str:
    with pytest.raises(UnknownModelError) as caught:
        load_model(str(ref))
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestPresets:
    @pytest.mark.parametrize("name", presets())
    def test_each_reads_without_guessing(self, name):
        model = load_model(name)
        assert model.name == name
        assert model.source.startswith("https://huggingface.co/")
        assert model.groups
        assert not any("not known" in note or "looked for" in note for note in model.notes)

    def test_any_case(self):
        assert load_model("GLM-5.2-FP8") == load_model("glm-5.2-fp8")

    def test_by_the_name_of_its_page(self):
        assert load_model("zai-org/GLM-5.2-FP8") == load_model("glm-5.2-fp8")
        assert load_model("meta-llama/Llama-3.1-8B-Instruct").name == "llama-3.1-8b"

    @pytest.mark.parametrize(
        ("typo", "meant"),
        [("glm5.2", "glm-5.2-fp8"), ("gpt-os-20b", "gpt-oss-20b"), ("zai-org/GLM-5.2", "glm-5.2")],
    )
    def test_a_typo_is_answered_with_the_nearest(self, typo, meant):
        assert f"did you mean {meant}" in refusal(typo)

    @pytest.mark.parametrize(
        "ref", ["", " ", "zzzzzz", "a\0b", "x" * 5000, "tab\tnewline\n", "..x"]
    )
    def test_nothing_of_the_kind(self, ref):
        assert refusal(ref).startswith("no preset, file or folder ")

    def test_the_issues_families_are_there(self):
        families = ("llama", "mistral", "qwen2", "qwen3", "gemma-2", "gemma-3", "gpt-oss")
        families += ("deepseek-v2", "deepseek-v3", "deepseek-v3.2", "glm-5", "kimi-k2")
        for family in families:
            assert any(name.startswith(family) for name in presets()), family


class TestFiles:
    def test_a_file(self, tmp_path):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(LLAMA))
        assert load_model(str(file)).name == str(file)

    def test_a_folder(self, tmp_path):
        (tmp_path / "config.json").write_text("\ufeff" + json.dumps(LLAMA), "utf-8")
        assert load_model(str(tmp_path)).groups[0].count == 2

    def test_a_folder_with_quantisation_beside(self, tmp_path):
        (tmp_path / "config.json").write_text(json.dumps(LLAMA))
        beside = {"producer": {}, "quantization": {"kv_cache_quant_algo": "FP8"}}
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
        group = load_model(str(tmp_path)).groups[0]
        assert group.layer.get("kv_cache_dtype") == "fp8_e4m3"
        assert group.origins["kv_cache_dtype"] == "checkpoint quantisation"

    def test_config_json_wins_over_quantisation_beside(self, tmp_path):
        (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "quantization_config": {}}))
        beside = {"quantization": {"kv_cache_quant_algo": "FP8"}}
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
        model = load_model(str(tmp_path))
        assert model.groups[0].layer.get("kv_cache_dtype") == "auto"
        assert model.notes[0].startswith("hf_quant_config.json beside it: not read")

    @pytest.mark.parametrize("name", ["adapter_config.json", "generation_config.json"])
    def test_other_files_beside_are_named_in_a_note(self, tmp_path, name):
        (tmp_path / "config.json").write_text(json.dumps(LLAMA))
        (tmp_path / name).write_text("not even JSON")
        assert load_model(str(tmp_path)).notes[0].startswith(f"{name} beside it: ")

    @pytest.mark.parametrize(
        ("adapter", "words"),
        [
            ('{"base_model_name_or_path": "Qwen/Qwen3-8B"}', 'model it is for, "Qwen/Qwen3-8B"'),
            ("{}", "it holds an adapter; give the model it is for"),
        ],
    )
    def test_an_adapter_alone(self, tmp_path, adapter, words):
        (tmp_path / "adapter_config.json").write_text(adapter)
        assert refusal(tmp_path).endswith(words)

    def test_standard_input(self, monkeypatch):
        stream = io.TextIOWrapper(io.BytesIO(json.dumps(LLAMA).encode()), "utf-8")
        monkeypatch.setattr("sys.stdin", stream)
        assert load_model("-").name == "stdin"

    def test_a_preset_wins_over_a_folder_of_its_name(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "qwen3-8b").mkdir()
        assert load_model("qwen3-8b").groups
        assert "no config.json in this folder" in refusal("./qwen3-8b")

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"", ":1:1: not JSON: "),
            (b"{", "not JSON: "),
            (b'{"a": 1,}', "not JSON: "),
            (b"[1]", "a list of 1 is not an object"),
            (b'"x"', '"x" is not an object'),
            (b"null", "null is not an object"),
            (b"{}", "no attention fields: looked for num_hidden_layers"),
            (b"\xff\xfe{}", "not UTF-8 text at byte 0"),
            (b"\x00" * 9, "not JSON: "),
            (b"GGUF\x03", "GGUF is not read; give the config.json it was made from"),
            (b'{"a":' * 200_000, "nested too deeply"),
            (b'{"a":' + b"9" * 5000 + b"}", "holds a number that is too long"),
            (b" " * (MAX_BYTES + 1), "longer than 4,194,304 bytes"),
        ],
        ids=lambda value: value[:12] if isinstance(value, bytes) else None,
    )
    def test_what_is_no_config(self, tmp_path, data, message):
        file = tmp_path / "config.json"
        file.write_bytes(data)
        said = refusal(file)
        assert said.startswith(str(file))
        assert message in said

    def test_a_folder_without_one(self, tmp_path):
        assert refusal(tmp_path) == f"{tmp_path}: no config.json in this folder"

    def test_not_a_regular_file(self):
        assert refusal("/dev/zero") == "/dev/zero: not a regular file"

    def test_a_folder_in_place_of_the_file(self, tmp_path):
        (tmp_path / "config.json").mkdir()
        assert "not a regular file" in refusal(tmp_path)

    def test_a_name_over_two_lines(self, tmp_path):
        file = tmp_path / "a\nb.json"
        file.write_text("{")
        assert "a?b.json" in refusal(file)

    def test_a_missing_file(self, tmp_path):
        assert refusal(tmp_path / "config.json").startswith("no preset, file or folder ")

    def test_errors_of_the_config_begin_with_the_file(self, tmp_path):
        file = tmp_path / "c.json"
        file.write_text(json.dumps({**LLAMA, "num_attention_heads": -1}))
        with pytest.raises(AttnselError) as caught:
            load_model(str(file))
        assert str(caught.value).startswith(f"{file}: num_attention_heads -1 is not")
