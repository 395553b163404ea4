"""Models by name or by path: presets, ``config.json`` files, checkpoint folders."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path

import msgspec

from selector.errors import UnknownModelError
from selector.models.merging import merged
from selector.models.reader import read_config
from selector.models.source import shown
from selector.values import Model

__all__ = ["load_model", "presets"]

MAX_BYTES = 4 * 2**20
"""A longer ``config.json`` is refused; the longest public ones are a tenth of this."""

_IGNORED = (
    ("adapter_config.json", "adapters are not read; they change weights, not attention"),
    ("generation_config.json", "not read; it says nothing of attention"),
    ("params.json", "not read; config.json is"),
)
"""Files of a checkpoint folder that a reader might expect to count, and why they do not."""

_BESIDE = "hf_quant_config.json"
"""The file beside, and the key under which the reader finds what it holds."""

_FOLDER = Path(__file__).parent / "presets"


@cache
def presets() -> tuple[str, ...]:
    """The names of the models that ship with attnsel, sorted."""
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.json")))


def load_model(ref: str, overrides: Mapping[str, object] | None = None) -> Model:
    """Gives the attention layers of a model, with the whole model's head counts.

    Args:
        ref: a preset (``glm-5.2-fp8``, in any case, or the page's own ``zai-org/GLM-5.2-FP8``),
            the path of a ``config.json``, a folder that holds one, or ``-`` for standard input. A
            preset wins over a path of the same name; write ``./name`` for the path. A folder's
            ``hf_quant_config.json`` is read too when ``config.json`` does not speak of
            quantisation; other files beside it are not, and a note says so where they matter.
        overrides: keys that replace those of the config before it is read.

    Raises:
        UnknownModelError: there is no such preset or file, it cannot be read, is no JSON object,
            or has no attention fields.
        ValueRefusedError: a field holds what it cannot.
        ContradictionError: two fields cannot both hold.
    """
    changed = overrides or {}
    if ref == "-":
        config = _parse(sys.stdin.buffer.read(MAX_BYTES + 1), "stdin")
        return read_config(merged(config, changed), name="stdin")
    name = _preset_named(ref)
    if name is not None:
        return _load_preset(name, changed)
    if not _exists(ref):
        raise UnknownModelError(_nothing_there(ref))
    path = Path(ref)
    if path.is_dir():
        return _load_folder(path, changed)
    return read_config(merged(_read_object(path), changed), name=_label(path))


def _exists(ref: str) -> bool:
    """Whether a reference is a path of something that is there."""
    try:
        return bool(ref.strip()) and Path(ref).exists()
    except (OSError, ValueError):  # too long, a NUL, or a folder that may not be entered
        return False


def _label(path: Path) -> str:
    """A path as messages show it: on one line."""
    return "".join(c if c.isprintable() else "?" for c in str(path))


def _preset_named(ref: str) -> str | None:
    """The preset a reference names, by its own name or by that of its page."""
    wanted = ref.lower()
    if wanted in presets():
        return wanted
    if wanted.count("/") == 1 and not wanted.startswith((".", "/", "~")):
        for name in presets():
            page = str(_read_object(_FOLDER / f"{name}.json").get("source", ""))
            if page.lower().endswith("/" + wanted) and not _exists(ref):
                return name
    return None


def _load_preset(name: str, changed: Mapping[str, object]) -> Model:
    stored = _read_object(_FOLDER / f"{name}.json")
    config = stored.get("config")
    if not isinstance(config, Mapping):
        raise UnknownModelError(f"preset {name} has no config")
    return read_config(merged(config, changed), name=name, source=str(stored.get("source", "")))


def _nothing_there(ref: str) -> str:
    near = get_close_matches(ref.lower().rsplit("/", 1)[-1], presets(), 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else "`attnsel model --list` shows the presets"
    return f"no preset, file or folder {shown(ref)}; {hint}"


def _load_folder(folder: Path, changed: Mapping[str, object]) -> Model:
    file = folder / "config.json"
    if not file.exists():
        raise UnknownModelError(f"{_label(folder)}: no config.json in this folder{_base(folder)}")
    config = _read_object(file)
    beside = folder / _BESIDE
    notes = [f"{name} beside it: {why}" for name, why in _IGNORED if (folder / name).exists()]
    if beside.exists():
        if "quantization_config" in config:
            notes.append(f"{beside.name} beside it: not read, config.json speaks of quantisation")
        else:
            config = {**config, _BESIDE: _read_object(beside)}
    model = read_config(merged(config, changed), name=_label(file))
    return msgspec.structs.replace(model, notes=(*notes, *model.notes))


def _base(folder: Path) -> str:
    """What to do with a folder that holds an adapter alone."""
    file = folder / "adapter_config.json"
    if not file.exists():
        return ""
    base = _read_object(file).get("base_model_name_or_path")
    named = f", {shown(base)}" if isinstance(base, str) else ""
    return f": it holds an adapter; give the model it is for{named}"


def _read_object(path: Path) -> Mapping[str, object]:
    """The JSON object in a file.

    Raises:
        UnknownModelError: there is none; says why on one line.
    """
    where = _label(path)
    try:
        if not path.is_file():
            raise UnknownModelError(f"{where}: not a regular file")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UnknownModelError(f"{where}: {error.strerror or type(error).__name__}") from None
    return _parse(data, where)


def _parse(data: bytes, where: str) -> Mapping[str, object]:
    """The JSON object that these bytes are; ``where`` begins the errors.

    Raises:
        UnknownModelError: they are none; says why on one line.
    """
    if data.startswith(b"GGUF"):
        raise UnknownModelError(f"{where}: GGUF is not read; give the config.json it was made from")
    if len(data) > MAX_BYTES:
        raise UnknownModelError(f"{where}: longer than {MAX_BYTES:,} bytes: no config.json")
    try:
        found = json.loads(data.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise UnknownModelError(
            f"{where}:{error.lineno}:{error.colno}: not JSON: {error.msg}"
        ) from None
    except UnicodeDecodeError as error:
        raise UnknownModelError(f"{where}: not UTF-8 text at byte {error.start:,}") from None
    except RecursionError:
        raise UnknownModelError(f"{where}: nested too deeply") from None
    except ValueError:  # an integer with thousands of digits
        raise UnknownModelError(f"{where}: holds a number that is too long") from None
    if not isinstance(found, Mapping):
        raise UnknownModelError(f"{where}: {shown(found)} is not an object")
    return found
