"""The table of flags: complete, and every row read in every spelling."""

import json
from pathlib import Path
from typing import Any

import pytest

from selector.loading import load
from selector.resources import manifest_path
from selector.serving.commands import CommandError, read_command, table
from selector.serving.commands.flags import Flag

FACTS = Path(__file__).parents[5] / "shared" / "facts" / "engine_flags.json"
ROWS = {kind: [r for r in table().flags if r.kind == kind] for kind in ("flag", "key", "variable")}
DEPLOYMENT = {
    "backend",
    "backend_per_kind",
    "chunked_prefill",
    "convert",
    "draft_backend",
    "draft_kv_cache_dtype",
    "draft_model",
    "draft_tp_size",
    "hf_overrides",
    "kv_cache_dtype_skip_layers",
    "language_model_only",
    "max_model_len",
    "max_num_batched_tokens",
    "mla_prefill_backend",
    "mm_encoder_only",
    "parallel_drafting",
    "prefix_caching",
    "quantization",
    "runner",
    "speculative_method",
    "speculative_tokens",
    "strict_variables",
    "tower_backend",
}
"""Fields that are no words of the manifest."""

SAMPLES = {
    "text": "auto",
    "integer": "4",
    "number": "1.5",
    "size": "4k",
    "size_or_auto": "4K",
    "json": '{"a": 1}',
    "boolean": "true",
    "many": "0",
}


def sample(row: Flag) -> str:
    return row.values[0] if row.values else SAMPLES[row.takes]


def spelled(row: Flag) -> list[list[str]]:
    """Every way to give a flag a value."""
    names = [*row.spellings, *(n.replace("-", "_").replace("__", "--", 1) for n in row.spellings)]
    names = [n for n in names if n.startswith(("--", *row.spellings))]
    if row.takes == "switch":
        return [[name] for name in (*names, *row.negations)]
    value = sample(row)
    ways = [way for name in names for way in ([name, value], [f"{name}={value}"])]
    if row.kind == "key":
        held = value if row.takes in ("integer", "number", "json", "boolean") else json.dumps(value)
        ways += [[row.root, f'{{"{row.key}": {held}}}'], [f'{row.root}={{"{row.key}": {held}}}']]
    return ways


def names(rows: list[Flag]) -> Any:
    return pytest.mark.parametrize("row", rows, ids=[row.name for row in rows])


class TestTable:
    def test_every_row_of_the_facts(self):
        if not FACTS.exists():
            pytest.skip("the facts are not beside this checkout")
        rows = [r for r in json.loads(FACTS.read_text())["rows"] if r["engine"] == "vllm"]
        ours = {row.name: row for row in table().flags}
        assert len(rows) == 143
        for row in rows:
            mine = ours[row["name"]]
            assert mine.status == {"not_yet": "absent"}.get(row["status"], row["status"])
            assert (mine.stage or "-") == row["stage"]
            assert mine.dest == row.get("dest")
            spellings = {*mine.spellings, *mine.negations}
            assert {a for a in row["aliases"] if " " not in a} <= spellings

    def test_fields_are_words_of_the_manifest(self):
        vocabulary = load(manifest_path("vllm-0.33.0")).vocabulary
        fields = {field for row in table().flags for field in row.sets}
        assert {field for field in fields if field not in vocabulary} == DEPLOYMENT

    def test_replacements_are_there(self):
        for row in table().flags:
            if row.replacement:
                found = table().find(row.replacement.partition("=")[0])
                assert found is not None
                assert found.flag.status == "live"

    def test_every_row_says_what_it_does(self):
        assert all(row.effect.endswith(".") for row in table().flags)


class TestSpellings:
    @names(ROWS["flag"])
    def test_of_flags(self, row: Flag):
        read = set()
        for way in spelled(row):
            command = read_command(["vllm", "serve", "m", *way])
            assert not [n for n in command.notes if n.kind == "unknown" and n.flag == way[0]]
            assert command.model == "m"
            if row.takes != "switch":
                read.add(json.dumps([[s.field, s.value] for s in command.settings]))
        assert len(read) <= 1

    @names(ROWS["key"])
    def test_of_keys(self, row: Flag):
        read = set()
        for way in spelled(row):
            command = read_command(["vllm", "serve", "m", *way])
            read.add(json.dumps([[s.field, s.value] for s in command.settings]))
            kinds = {note.kind for note in command.notes if note.flag == row.name}
            expected = {"dead": {"dead"}, "absent": {"unknown"}}.get(row.status)
            assert kinds == (expected or kinds - {"dead", "unknown"})
        assert len(read) == 1

    @names(ROWS["variable"])
    def test_of_variables(self, row: Flag):
        command = read_command(["vllm", "serve", "m"], {row.name: "1"})
        assert [s.field for s in command.settings] == list(row.sets)
        kinds = {note.kind for note in command.notes if note.flag == row.name}
        assert ("dead" in kinds) == (row.status == "dead")

    @names([row for row in ROWS["flag"] if row.takes == "switch"])
    def test_of_negations(self, row: Flag):
        for name in row.negations:
            found = table().find(name)
            assert (found.flag, found.negated) == (row, True)


class TestFinding:
    @pytest.mark.parametrize("spelling", ["--nothing", "-x", "model", "-", "--", "--x.y", ""])
    def test_unknown(self, spelling: str):
        assert table().find(spelling) is None

    def test_a_beginning_of_several(self):
        with pytest.raises(CommandError, match="write it in full"):
            table().find("--enable-")

    def test_nearest(self):
        assert table().nearest("--kv-cache-dtpye") == "--kv-cache-dtype"
