"""Serve commands and the answers that were worked out by hand before preflight was asked.

A row of ``answers.jsonl`` has a command (``line`` or ``container``), a GPU, a model (a preset or a
config) and its answer:

* ``starts``: whether it does;
* ``selects``: backend of each group; ``PREFILL | DECODE`` where they differ;
* ``refuses``: stage, layers, backend that was forced or selected, and for each candidate the field
  and value at fault, or (under "") what is said;
* ``mended``: command lines of which any is a smallest change; none helps where the list is empty;
* ``elsewhere``: where it runs as it is; ``values``: layers, field, value, who says it, where;
* ``because``: where the answer is from; ``wrong``: what preflight is known to get wrong.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from cli.main import app
from selector.devices import find_gpu
from selector.models import load_model
from selector.report.preflight import preflight_json
from selector.schema import load_schema
from selector.serving.commands import Command, read_command, read_container, split_line
from selector.serving.layers.refusal import Stage
from selector.serving.preflight.answer import Engine, preflight
from selector.values import Model

ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("answers.jsonl").read_text().splitlines()
]
DEAD = [row for row in ROWS if not row["starts"]]
LINES = [row for row in ROWS if "line" in row]
SHOWN = {  # also asked for on the command line
    "a dead variable pins nothing",
    "a dead key",
    "cache type of the checkpoint on 8.0",
    "sinks with nvfp4 on 12.0",
    "MLA prefill by a pin that 12.0 has not",
    "sparse on 8.9",
    "images on 10.0",
    "eagle that inherits fp8 on 8.0",
    "a container that does not start",
}
Row = dict[str, Any]
Ask = Callable[[Row, str | None], dict[str, Any]]


def each(rows: list[Row], *, strict: bool = True) -> Any:
    """One test for each row; what is known to be wrong must fail."""
    marked = [
        pytest.param(
            row,
            id=row["name"],
            marks=pytest.mark.xfail(reason=row["wrong"], strict=True)
            if strict and "wrong" in row
            else (),
        )
        for row in rows
    ]
    return pytest.mark.parametrize("row", marked)


def read(row: Row, line: str | None = None) -> Command:
    if line is None and "container" in row:
        (command,) = read_container(row["container"])
        return command
    variables, argv = split_line(row["line"] if line is None else line)
    return read_command(argv, variables)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], str]:
    """What to load: the preset, or a config written to a file."""
    written: dict[str, str] = {}

    def path(model: str | dict[str, Any]) -> str:
        if isinstance(model, str):
            return model
        text = json.dumps(model)
        if text not in written:
            file = tmp_path_factory.mktemp("model") / "config.json"
            file.write_text(text)
            written[text] = str(file)
        return written[text]

    return path


@pytest.fixture(scope="module")
def ask(model_file: Callable[[Any], str]) -> Ask:
    """The answer to a row, or to another line for its model and GPU."""
    engine = Engine.load("vllm-0.33.0")
    models: dict[str, Model] = {}
    known: dict[tuple[str, str | None], dict[str, Any]] = {}

    def load(model: Any) -> Model:
        file = model_file(model)
        if file not in models:
            models[file] = load_model(file)
        return models[file]

    def answer(row: Row, line: str | None = None) -> dict[str, Any]:
        key = row["name"], line
        if key not in known:
            draft = load(row["draft"]) if "draft" in row else None
            device = find_gpu(row["gpu"])
            found = preflight(read(row, line), load(row["model"]), device, engine, draft)
            known[key] = preflight_json([found])
        return known[key]

    return answer


def selects(answer: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for group in answer["groups"]:
        if (chosen := group["selected"]) is not None:
            names = [chosen[p]["backend"] for p in ("prefill", "decode") if chosen[p]]
            found[f"{group['stack']} {group['name']}"] = " | ".join(dict.fromkeys(names))
    return found


def at(refusal: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (refusal["stack"], refusal["group"])))


@each(ROWS)
def test_the_answer(row: Row, ask: Ask):
    answer = ask(row, None)
    assert answer["will_start"] is row["starts"], answer["refusals"]
    check_selected(row, answer)
    check_said(row, answer)
    if not row["starts"]:
        check_refused(row, answer)
        check_changed(row, answer)


def check_selected(row: Row, answer: Mapping[str, Any]) -> None:
    found = selects(answer)
    if row["starts"]:
        assert found == row["selects"]
    assert found.items() >= row.get("selects", {}).items()


def check_said(row: Row, answer: Mapping[str, Any]) -> None:
    """Each value that the row names is there and from whom it says, and so is each note."""
    for layers, field, value, kind, where in row.get("values", ()):
        traces = {
            (v["value"], v["kind"], v["where"])
            for group in answer["groups"]
            if f"{group['stack']} {group['name']}" == layers
            for v in group["values"]
            if v["field"] == field
        }
        assert any(t[:2] == (value, kind) and where in ("", t[2]) for t in traces), traces
    notes = [[note["kind"], note["flag"]] for note in answer["notes"]]
    assert [note for note in row.get("notes", ()) if note not in notes] == []


def check_refused(row: Row, answer: Mapping[str, Any]) -> None:
    found = [[one["stage"], at(one), one["backend"]] for one in answer["refusals"]]
    assert found == [expected[:3] for expected in row["refuses"]]
    for refusal, (*_, limits) in zip(answer["refusals"], row["refuses"], strict=True):
        said = {
            one["backend"]: [f"{r['field']} {r['observed']}" for r in one["rejections"]]
            for one in refusal["candidates"]
        }
        for backend, limit in limits.items():
            assert limit in (said[backend] if backend else refusal["text"])


def check_changed(row: Row, answer: Mapping[str, Any]) -> None:
    change = answer["change"]
    if row["mended"]:
        assert change is not None
        assert change["command"] in row["mended"]
        assert len(change["changes"]) == 1
    else:
        assert change is None
        assert answer["elsewhere"] == row["elsewhere"]


class TestLaws:
    def test_the_rows(self, ask: Ask):
        assert len({row["name"] for row in ROWS}) == len(ROWS) >= 40
        assert len(DEAD) * 3 >= len(ROWS)
        assert all(row["because"] for row in ROWS)
        gpus = {ask(row, None)["device"]["capability"] for row in ROWS}
        assert gpus >= {"7.5", "8.0", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1"}
        assert {one[0] for row in DEAD for one in row["refuses"]} == set(get_args(Stage))

    @each(ROWS, strict=False)
    def test_a_refusal_has_a_stage_a_limit_and_one_line(self, row: Row, ask: Ask):
        answer = ask(row, None)
        assert answer["will_start"] is not bool(answer["refusals"])
        for refusal in answer["refusals"]:
            assert refusal["stage"] in get_args(Stage)
            assert refusal["text"]
            assert "\n" not in refusal["text"]
            backends = refusal["stage"] in ("selection", "mla prefill", "constructor")
            assert bool(refusal["candidates"]) is backends
            assert all(one["rejections"] for one in refusal["candidates"])

    @each(ROWS, strict=False)
    def test_a_change_is_for_what_does_not_start_and_then_it_starts(self, row: Row, ask: Ask):
        answer = ask(row, None)
        if answer["will_start"]:
            assert (answer["change"], answer["elsewhere"]) == (None, [])
        elif answer["change"] is not None:
            line = answer["change"]["command"]
            again = ask(row, line)
            assert (again["will_start"], again["change"]) == (True, None)
            assert again["command"] == line
            before, after = (
                {f"{g['stack']} {g['name']}": g["count"] for g in one["groups"]}
                for one in (answer, again)
            )
            assert after.items() >= before.items()

    @each(LINES, strict=False)
    @pytest.mark.parametrize(
        "quote",
        [
            lambda word: "'" + word.replace("'", "'\\''") + "'",
            lambda word: '"' + re.sub(r'([\\"$`])', r"\\\1", word) + '"',
            lambda word: re.sub(r"(\W)", r"\\\1", word),
        ],
        ids=["single", "double", "backslashes"],
    )
    def test_quoting_changes_nothing(self, row: Row, quote: Callable[[str], str]):
        words = shlex.split(row["line"])
        first = next(i for i, word in enumerate(words) if not re.match(r"\w+=", word))
        parts = [word.partition("=") for word in words[:first]]
        own = [f"{name}={quote(value)}" for name, _, value in parts]
        again = " \t ".join([*own, *(quote(word) for word in words[first:])])
        assert again != row["line"]
        assert read(row, again) == read(row)

    @each([row for row in ROWS if "container" in row], strict=False)
    def test_a_container_as_yaml(self, row: Row):
        again = {"container": yaml.safe_dump(json.loads(row["container"]))}
        assert read(again) == read(row)


@each([row for row in ROWS if row["name"] in SHOWN], strict=False)
class TestCommandLine:
    @pytest.fixture
    def words(
        self,
        row: Row,
        tmp_path: Path,
        model_file: Callable[[Any], str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> list[str]:
        """How the command line is told of the GPU and the models; the drafter lies beside it."""
        monkeypatch.chdir(tmp_path)
        if "draft" in row:
            (tmp_path / "draft").mkdir()
            (tmp_path / "draft" / "config.json").write_text(json.dumps(row["draft"]))
        return ["preflight", "--gpu", row["gpu"], "--model", model_file(row["model"])]

    @pytest.fixture
    def command(self, row: Row, tmp_path: Path) -> list[str]:
        if "container" not in row:
            return ["--", row["line"]]
        (tmp_path / "pod.json").write_text(row["container"])
        return ["--container", "pod.json"]

    def test_json(self, row: Row, words: list[str], command: list[str], ask: Ask):
        ran = CliRunner().invoke(app, [*words, "--format", "json", *command])
        assert ran.exit_code == (0 if row["starts"] else 3)
        answer, expected = json.loads(ran.stdout), ask(row, None)
        Draft202012Validator(load_schema("preflight")).validate(answer)
        keys = ("will_start", "command", "device", "change", "assumed", "elsewhere")
        assert {key: answer[key] for key in keys} == {key: expected[key] for key in keys}
        assert selects(answer) == selects(expected)
        assert [r["text"] for r in answer["refusals"]] == [r["text"] for r in expected["refusals"]]

    def test_print(self, row: Row, words: list[str], command: list[str]):
        ran = CliRunner().invoke(app, [*words, "--print", *command])
        assert ran.exit_code == (0 if row["starts"] else 3)
        (line,) = ran.stdout.splitlines()
        if row.get("mended"):
            assert line in row["mended"]
        again = CliRunner().invoke(app, [*words, "--print", "--", line])
        assert again.exit_code == (3 if row.get("mended") == [] else 0)
        assert again.stdout.splitlines() == [line]
