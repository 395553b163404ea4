"""Small packages of the shape of an engine, written as folders or as wheels."""

from __future__ import annotations

import re
import textwrap
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from selector.drift.evaluating import Probe, Worlds, make_worlds, read_attribute
from selector.drift.modules import Modules
from selector.drift.reading import Attribute
from selector.drift.sources import open_source
from selector.drift.terms import Place

Files = Mapping[str, str]


def write_package(root: Path, files: Files) -> Path:
    """Writes modules under a folder; each package gets an ``__init__.py``."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    for folder in {root / name for file in files for name in map(str, Path(file).parents)}:
        if folder != root and not (folder / "__init__.py").exists():
            (folder / "__init__.py").write_text("", encoding="utf-8")
    return root


def write_wheel(path: Path, files: Files, version: str = "1.2.3") -> Path:
    """Writes modules as a wheel."""
    package = next(iter(files)).split("/")[0]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, text in files.items():
            wheel.writestr(name, textwrap.dedent(text))
        folders = {str(one) for file in files for one in Path(file).parents} - {"."}
        for folder in folders:
            if f"{folder}/__init__.py" not in files:
                wheel.writestr(f"{folder}/__init__.py", "")
        head = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        wheel.writestr(f"{package}-{version}.dist-info/METADATA", head)
    return path


class Reading:
    """A package that was opened, to ask its classes."""

    def __init__(self, root: Path, capabilities: tuple[str, ...]) -> None:
        self.modules = Modules(open_source(root, "engine"))
        self.worlds: Worlds = make_worlds(self.modules, capabilities, lambda one: {})

    @property
    def messages(self) -> list[str]:
        return [str(finding) for finding in self.modules.findings]

    @property
    def codes(self) -> list[str]:
        return sorted(finding.code for finding in self.modules.findings)

    def ask(self, cls: str, name: str, probe: Probe | None = None) -> Attribute | None:
        return read_attribute(
            self.worlds, lambda world: world.by_path(cls, Place("", 1, 1)), name, probe
        )

    def value(self, cls: str, name: str) -> Any:
        """The value that is read; fails where it is not known."""
        attribute = self.ask(cls, name)
        assert attribute is not None
        assert attribute.answer is not None
        assert attribute.answer.dynamic is None, attribute.answer.dynamic
        return attribute.answer.value

    def why(self, cls: str, name: str) -> str:
        """Why a value is not known; fails where one is given."""
        attribute = self.ask(cls, name)
        assert attribute is not None
        assert attribute.answer is not None
        assert attribute.answer.dynamic is not None, attribute.answer
        found = attribute.answer.dynamic
        return f"{found.at.file}:{found.at.line}: {found.expression} {found.why}"


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Reading]:
    """Modules of a package ``engine`` → what can be asked of it."""

    def make(files: Files | str, capabilities: tuple[str, ...] = ("9.0",)) -> Reading:
        known = {"engine/code.py": files} if isinstance(files, str) else files
        return Reading(write_package(tmp_path, known), capabilities)

    return make


WANTED = re.compile(r"^(supports_|supported_|is_|get_)")
