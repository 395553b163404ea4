"""Random serve commands: sensible ones, wild ones, and ones with a mistake made in them."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from selector.devices import architectures
from selector.models import presets
from selector.serving.commands import split_line
from selector.serving.commands.flags import Flag, table
from tests.fuzz.outcome import Outcome, Tally, attempt, engine

__all__ = ["run"]

_LINES = Path(__file__).parents[1] / "unit" / "serving" / "commands" / "commands.jsonl"
_LAUNCHES = (
    "vllm serve {model}",
    "vllm serve {model}",
    "vllm serve {model}",
    "vllm serve --model={model}",
    "python -m vllm.entrypoints.openai.api_server --model {model}",
    "python3 -u -m vllm.entrypoints.cli.main serve {model}",
    "nohup env HF_HOME=/c vllm serve {model}",
    "docker run --gpus all -e VLLM_MLA_DISABLE=1 vllm/vllm-openai:latest --model {model}",
    "docker run --rm vllm/vllm-openai:v0.33.0 {model}",
    "srun -n 1 vllm serve {model}",
    "VLLM_BATCH_INVARIANT=1 CUDA_VISIBLE_DEVICES=0 vllm serve {model}",
)
_ASKED_AGAIN = 0.25
"""So many of the answers are held against the laws, which takes several runs each."""

_NUMBERS = ("0", "1", "2", "3", "4", "5", "7", "8", "16", "64", "128", "256", "4096", "-1", "1e3")
_ODD = (
    "", " ", "-", "--", "---", "=", "{}", "[]", "null", "true", "None", "nan", "1e999", "0x10",
    "99999999999999999999", "-7", "é", "\u202e", "\x00", "\x1b[31m", "'", '"', "\\", "$HOME",
    "$(id)", "`id`", ";", "|", "&&", ">", "*", "~", "#", "{" * 70, "[" * 3000, "a" * 5000, "\n",
    "１６", "8.0", "4k", "4K", "auto", "AUTO", "--attention-backend=", ".", "..", "-ac.", "-ac..a",
    '{"a":', '{"a":1}{', '{"backend":"FLASH_ATTN","backend":"TRITON_ATTN"}', "\ud800",
)  # fmt: skip
_GPUS = ("NVIDIA H100 80GB HBM3", "rtx pro 6000", "RTX", "A 100", "H200 Max", "Voodoo 2", "")
_ARCHS = ("sm90", "sm_120a", "9.0", "12.0", "13.7", "cpu", "rocm", "xpu", "gfx942", "90", "-1.0")
_METHODS = ("mtp", "deepseek_mtp", "eagle", "eagle3", "draft_model", "ngram", "medusa", "x", "")
_TEXTS = ("half", "float16", "bfloat16", "float32", "fp8", "awq", "TCP", "auto", "none", "x")


class Case(NamedTuple):
    """One run: a kind, the options, the words behind ``--``, and standard input."""

    kind: str
    options: list[str]
    words: list[str]
    stdin: bytes = b""

    def arguments(self, *form: str) -> list[str]:
        behind = ["--", *self.words] if self.words else []
        return ["preflight", *self.options, *form, *behind]


def run(count: int, seed: int) -> Tally:
    """Runs so many cases; number N of a seed is always the same, however many there are."""
    tally = Tally("command lines", seed)
    for number in range(count):
        dice = random.Random(f"{seed} command {number}")
        case = _case(dice)
        outcome = attempt(case.arguments("--format", "json"), case.stdin)
        shown = f"{shlex.join(case.arguments())} {case.stdin!r:.3000}"
        asked_again = not outcome.trouble and dice.random() < _ASKED_AGAIN
        broken = _broken_law(case, outcome, dice) if asked_again else ""
        tally.add(number, f"{case.kind}: {_kind(outcome)}", shown, outcome, broken)
    return tally


def _kind(outcome: Outcome) -> str:
    if outcome.code == 0:
        return "starts"
    if outcome.code == 2:
        return "cannot be read"
    if outcome.code != 3:
        return "failed"
    answers = _answers(outcome)
    return "does not start; mended" if all(_mended(a) for a in answers) else "does not start"


def _answers(outcome: Outcome) -> list[Any]:
    answer = outcome.json
    return list(answer["commands"]) if "commands" in answer else [answer]


def _mended(answer: Any) -> bool:
    return answer["will_start"] or answer["change"] is not None


# -- the laws ------------------------------------------------------------------------------------


def _broken_law(case: Case, outcome: Outcome, dice: random.Random) -> str:
    """Which law an answer breaks; empty when it keeps all."""
    if outcome.code == 2:
        return ""
    for answer in _answers(outcome):
        again = _again(case, answer["command"])
        if again.trouble or again.code == 2 or again.json["will_start"] != answer["will_start"]:
            return f"the line that was read is not answered alike: {_said(again)}"
        if answer["change"] is not None:
            mended = _again(case, answer["change"]["command"])
            if mended.trouble or mended.code != 0:
                line = answer["change"]["command"]
                return f"the mended line does not start: {line!r:.2000} {_said(mended)}"
    for form in (("--print",), ()):
        said = attempt(case.arguments(*form), case.stdin)
        if said.trouble or said.code != outcome.code:
            return f"not alike in another form {form}: {_said(said)}"
        lines = [(a["change"] or a)["command"] for a in _answers(outcome)]
        if form and said.out.split() != " ".join(lines).split() and said.out.isprintable():
            return f"--print gives another line: {said.out!r:.2000}"
    return ""


def _again(case: Case, line: str) -> Outcome:
    """The line given as a command; what a container's image is given, as a container again."""
    options = [*_devices(case.options), "--format", "json"]
    outcome = attempt(["preflight", *options, "--", line])
    if case.kind != "container" or "is no serve command" not in outcome.err:
        return outcome
    variables, argv = split_line(line)
    env = [{"name": name, "value": value} for name, value in variables.items()]
    held = {"image": "vllm/vllm-openai", "args": argv, "env": env}
    return attempt(["preflight", *options, "--container", "-"], json.dumps(held).encode())


def _devices(options: Sequence[str]) -> list[str]:
    """The options without those that say where the commands stand."""
    pairs = zip(options[::2], options[1::2], strict=True)
    return [w for pair in pairs if pair[0] not in ("--file", "--container") for w in pair]


def _said(outcome: Outcome) -> str:
    return f"{outcome.trouble} {outcome.err.strip()} {outcome.out[:300]}".strip()


# -- the cases -----------------------------------------------------------------------------------


def _case(dice: random.Random) -> Case:
    options = [*_device(dice), *_model_option(dice)]
    make = dice.choices((_valid, _wild, _mutated), (6, 2, 3))[0]
    kind, words = make.__name__[1:], make(dice)
    where = dice.random()
    if where < 0.12:
        return Case("container", [*options, "--container", "-"], [], _container(dice, words))
    if where < 0.2:
        lines = [_line(dice, make(dice)) for _ in range(dice.randrange(0, 5))]
        text = "\n".join([_line(dice, words), *lines])
        return Case("file", [*options, "--file", "-"], [], text.encode("utf-8", "replace"))
    if where < 0.3:
        return Case(kind, options, [_line(dice, words)])
    if where < 0.35:
        return Case(kind, options, [*words, "--", *make(dice)])
    return Case(kind, options, words)


def _device(dice: random.Random) -> list[str]:
    known = [product for row in architectures() for product in row["products"]]
    roll = dice.random()
    if roll < 0.8:
        return ["--gpu", dice.choice(known)]
    return ["--gpu", dice.choice(_GPUS)] if roll < 0.85 else ["--arch", dice.choice(_ARCHS)]


def _model_option(dice: random.Random) -> list[str]:
    roll = dice.random()
    if roll < 0.4:
        return []
    return ["--model", "no-such-model" if roll < 0.41 else dice.choice(presets())]


def _valid(dice: random.Random) -> list[str]:
    """A launch, and flags with values that they may take."""
    words = dice.choice(_LAUNCHES).format(model=dice.choice(_models(dice))).split()
    for _ in range(dice.randrange(0, 7)):
        words += _given(dice, odd=0.01)
    variables = [_variable(dice) for _ in range(dice.randrange(0, 3) // 2)]
    return [*variables, *words]


def _wild(dice: random.Random) -> list[str]:
    """Words of all kinds, in any order."""
    words = ["vllm", "serve"] if dice.random() < 0.7 else []
    for _ in range(dice.randrange(0, 12)):
        roll = dice.random()
        if roll < 0.5:
            words += _given(dice, odd=0.5)
        elif roll < 0.8:
            words.append(dice.choice(_ODD))
        elif roll < 0.9:
            words.append(_variable(dice))
        else:
            words.append(dice.choice(("vllm", "serve", "sh", "-c", "env", "exec", "python", "-m")))
    return words


def _mutated(dice: random.Random) -> list[str]:
    """A command of the tests, or a sensible one, with mistakes made in it."""
    known = dice.choice(_known_lines()) if dice.random() < 0.6 else shlex.join(_valid(dice))
    words = known.split(" ") if dice.random() < 0.5 else _split(known)
    for _ in range(dice.randrange(1, 5)):
        place = dice.randrange(len(words))
        word = words[place]
        cut = dice.randrange(len(word) + 1)
        words[place : place + 1] = dice.choice(
            (
                [],
                [word, word],
                [word[:cut]],
                [word[:cut] + dice.choice(_ODD) + word[cut:]],
                [word[:cut], word[cut:]],
                [word, *_given(dice, odd=0.2)],
                [word.swapcase()],
                [word.replace("-", "_")],
                [dice.choice(_ODD)],
                [word, dice.choice(words)],
            )
        ) or ["x"] * (len(words) == 1)
    return words


def _models(dice: random.Random) -> Sequence[str]:
    name = dice.choice(presets())
    return name, f"some-org/{name.upper()}", f"/models/{name}/", "m"


@cache
def _known_lines() -> list[str]:
    rows = [json.loads(line) for line in _LINES.read_text("utf-8").splitlines()]
    return [str(row["line"]) for row in rows if row.get("line")]


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line) or ["vllm"]
    except ValueError:
        return line.split(" ")


# -- flags and values ----------------------------------------------------------------------------


@cache
def _rows() -> tuple[Flag, ...]:
    """Flags and keys that touch attention, the ones that select several times; then the others."""
    known = [f for f in table().flags if f.kind in ("flag", "key")]
    selecting = [f for f in known if f.sets] * 4
    others = {found.flag.name: found.flag for found in table().options.values()}
    return (*known, *selecting, *(f for f in others.values() if f.kind == "other"))


def _given(dice: random.Random, *, odd: float) -> list[str]:
    """A flag with a value, in one of its spellings."""
    if dice.random() < 0.03:
        return [dice.choice(("--no-such-flag", "-ac.no_such_key=1", "-x", "-sc.model", "--dtype"))]
    row = dice.choice(_rows())
    name = dice.choice([*row.spellings, *row.negations[:1]])
    if dice.random() < 0.05:
        name = name[: dice.randrange(2, len(name) + 1)]
    elif dice.random() < 0.1:
        name = name.replace("-", "_") if name.startswith("--") else name
        name = f"--{name[2:]}" if name.startswith("__") else name
    if row.takes in ("switch", "on") and dice.random() > odd:
        return [name]
    value = dice.choice(_ODD) if dice.random() < odd else _value(dice, row)
    roll = dice.random()
    if roll < 0.25:
        return [f"{name}={value}"]
    if roll < 0.28 and len(name) == 2:
        return [f"{name}{value}"]
    return [name, value]


def _value(dice: random.Random, row: Flag) -> str:
    if row.values:
        return dice.choice(row.values)
    how = {*row.sets.values()}
    if "backend" in how or "backend" in row.name:
        name = dice.choice([*engine("vllm-0.33.0").truth.manifest.entries])
        return dice.choice((name, name.removesuffix("_MLA_PREFILL"), name.lower()))
    for field in row.sets:
        own = engine("vllm-0.33.0").truth.manifest.vocabulary.fields.get(
            field.removeprefix("draft_")
        )
        if own is not None and own.type == "name" and (names := own.names()):
            return str(dice.choice(sorted(map(str, names))))
    if row.takes == "json":
        return _json(dice, row)
    if row.takes in ("boolean", "bit"):
        return dice.choice(("true", "false", "True", "0", "1"))
    if row.takes in ("integer", "number", "size", "size_or_auto"):
        return dice.choice(_NUMBERS)
    return dice.choice((*_TEXTS, *_METHODS, *presets()))


def _json(dice: random.Random, row: Flag) -> str:
    """An object with keys of the flag, some of them strange, sometimes broken."""
    held: dict[str, Any] = {}
    for key in [k for k in table().keys.values() if k.root == row.name]:
        if dice.random() < 0.12:
            held[key.key] = _plain(dice, _value(dice, key))
    if row.name == "--speculative-config":
        held["method"] = dice.choice(_METHODS)
        held["num_speculative_tokens"] = dice.choice((0, 1, 3, -1, "2", None, 10**30))
        if dice.random() < 0.5:
            held["model"] = dice.choice((*presets(), "no/such", "", None, 7, ["a"]))
    if dice.random() < 0.1:
        held[dice.choice(("a", "", "a.b", "é", "backend", "method"))] = _nested(dice, 3)
    text = json.dumps(held, indent=dice.choice((None, None, 1)))
    return text[: dice.randrange(len(text))] if dice.random() < 0.05 else text


def _plain(dice: random.Random, text: str) -> Any:
    roll = dice.random()
    if roll < 0.85:
        try:
            return json.loads(text)
        except ValueError:
            return text
    return _nested(dice, 2)


def _nested(dice: random.Random, deepest: int) -> Any:
    roll = dice.randrange(8 if deepest else 5)
    if roll < 5:
        return (None, True, 1.5, -3, "x")[roll]
    inner = [_nested(dice, deepest - 1) for _ in range(dice.randrange(3))]
    return inner if roll < 7 else {f"k{i}": one for i, one in enumerate(inner)}


def _variable(dice: random.Random) -> str:
    names = [*table().variables, *sorted(table().other_variables)[:20], "VLLM_NO_SUCH", "HF_HOME"]
    value = dice.choice(("0", "1", "1", "true", "FLASHINFER", "HND", "", "x", dice.choice(_ODD)))
    return f"{dice.choice(names)}={value}"


# -- where a command stands ----------------------------------------------------------------------


def _line(dice: random.Random, words: Sequence[str]) -> str:
    """Words as a line: quoted well, or badly."""
    roll = dice.random()
    if roll < 0.7:
        return shlex.join(words)
    if roll < 0.8:
        return " ".join(words)
    if roll < 0.9:
        return " \\\n  ".join(map(shlex.quote, words))
    return f"sh -c {shlex.quote(shlex.join(words))}"


def _container(dice: random.Random, words: Sequence[str]) -> bytes:
    """A container that runs the words, alone or inside a pod, with mistakes now and then."""
    cut = dice.randrange(len(words) + 1)
    held: dict[str, Any] = dice.choice(
        (
            {"args": [*words[2:]], "image": "vllm/vllm-openai:latest"},
            {"command": [*words]},
            {"command": [*words[:cut]], "args": [*words[cut:]]},
            {"command": ["sh", "-c"], "args": [shlex.join(words)]},
            {"command": " ".join(words)},
        )
    )
    pairs = [_variable(dice).partition("=") for _ in range(dice.randrange(3))]
    held["env"] = [{"name": name, "value": value} for name, _, value in pairs]
    if dice.random() < 0.1:
        held[dice.choice(("args", "command", "env", "image"))] = _nested(dice, 3)
    sidecar = {"image": "envoy", "args": ["-c", "x"]}
    document: Any = {"containers": [held, sidecar]} if dice.random() < 0.5 else held
    text = json.dumps(
        {"spec": {"template": {"spec": document}}} if dice.random() < 0.5 else document
    )
    if dice.random() < 0.3:
        import yaml

        text = yaml.safe_dump(json.loads(text), allow_unicode=dice.random() < 0.5)
    raw = text.encode("utf-8", "surrogatepass" if dice.random() < 0.1 else "replace")
    if dice.random() < 0.1:
        place = dice.randrange(len(raw) + 1)
        raw = (
            raw[:place]
            + dice.choice((b"", b"\xff", b"\t", b"*a", b"&a", b"{", b"}"))
            + raw[place + 1 :]
        )
    return raw
