"""Classes, members and ancestors, against another reader of Python code: griffe."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from selector.drift.engines.vllm import READER
from selector.drift.evaluating import ask, make_worlds
from selector.drift.hierarchy import find_member, members_of, order
from selector.drift.modules import Modules
from selector.drift.sources import open_source
from selector.drift.terms import ClassTerm, Place

from .conftest import write_package
from .test_vllm import engine_files

griffe = pytest.importorskip("griffe")


def classes_of(path: Path, module: str) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [f"{module}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)]


@pytest.fixture
def both(tmp_path: Path) -> tuple[Any, Any, list[str]]:
    """The synthetic engine as griffe reads it and as we do, and its classes."""
    files = engine_files()
    write_package(tmp_path, files)
    theirs = griffe.load("vllm", search_paths=[str(tmp_path)], allow_inspection=False)
    modules = Modules(open_source(tmp_path, READER.package))
    world = make_worlds(modules, ("9.0",), lambda one: {}).first
    paths = [
        path
        for name in files
        for path in classes_of(tmp_path / name, name.removesuffix(".py").replace("/", "."))
    ]
    return theirs, world, paths


def test_members_ancestors_and_defining_classes_agree(both: tuple[Any, Any, list[str]]) -> None:
    theirs, world, paths = both
    assert len(paths) > 15
    for path in paths:
        known = theirs[path.removeprefix("vllm.")]
        cls = ask(world, lambda frame, path=path: world.by_path(path, Place("", 1, 1)))
        assert isinstance(cls, ClassTerm), path
        assert cls.node.lineno == known.lineno
        ours = [one.path for one in order(world, cls) if isinstance(one, ClassTerm)]
        assert ours == [path, *(one.path for one in known.mro())]
        on_objects = {
            name
            for name, one in known.all_members.items()
            if one.is_attribute and not {"class-attribute", "property"} & one.labels
        }
        for name, owner in members_of(world, cls).items():
            if name in on_objects:
                continue  # griffe lets what a constructor sets on the object hide the class's own
            found = known.all_members[name]
            defined = found.target.path if found.is_alias else found.path
            assert defined == f"{owner.path}.{name}", path
            assert find_member(world, cls, name).owner is owner
        assert set(known.all_members) - on_objects <= set(members_of(world, cls))
