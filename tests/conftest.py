"""What all tests share: how hard the laws are tried, and small manifests made in Python."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from selector import Layer, Selector
from selector.document import read_text
from selector.loading import read

settings.register_profile(
    "quick",
    deadline=None,
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "deep",
    settings.get_profile("quick"),
    derandomize=False,
    max_examples=2000,
)
settings.load_profile("quick")


def read_engine_files(path: Path) -> dict[str, str]:
    """The files of an engine's package out of one text, in which each is under a ``#: path``."""
    files = {}
    for part in path.read_text(encoding="utf-8").split("#: ")[1:]:
        name, _, text = part.partition("\n")
        files[name] = textwrap.dedent(text)
    return files


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Manifests that tests read are kept apart from the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("ATTNSEL_CACHE_DIR", str(folder))
        yield folder


Tree = dict[str, Any]

CORE = ("platform", "capability", "dtype", "kv_cache_dtype", "head_size", "block_size", "attn_type")
PLAIN = {"head_size": 128, "dtype": "bfloat16", "kv_cache_dtype": "auto", "attn_type": "decoder"}


class Build:
    """Makes manifests that say nothing but what a test is about; JSON is YAML."""

    def entry(self, name: str = "one", *, accepts: Tree | None = None, **keys: Any) -> Tree:
        """A dense entry that accepts everything in both phases, but for what is given."""
        entry: Tree = {
            "name": name,
            "source": "test",
            "mla": False,
            "sparse": False,
            "accepts": {**dict.fromkeys(CORE, "any"), **(accepts or {})},
            "phases": {"prefill": {}, "decode": {}},
            **keys,
        }
        sparse = entry["sparse"]
        if "decode" in entry["phases"]:
            entry.setdefault("decode_threshold", 1)
        if "prefill" in entry["phases"]:
            path = "sparse_mqa" if sparse else "mha"
            entry.setdefault("prefill_paths", [{"path": path, "reason": "The only way."}])
        if sparse and "capability" not in (accepts or {}):
            entry["accepts"]["capability"] = ["9.0", "12.0"]
        if sparse and "dense_prefill" not in keys:
            entry |= {"dense_prefill": False, "rationale": "It is not there."}
        return entry

    def tree(self, *entries: Tree, **sections: Any) -> Tree:
        """A manifest of these entries, tried in this order."""
        backends = list(entries) or [self.entry()]
        tree: Tree = {"attnsel": 1, "name": "test", "version": "1", "backends": backends}
        tree["priorities"] = [{"order": [e["name"] for e in backends], "reason": "As listed."}]
        return {**tree, **sections}

    def selector(self, *entries: Tree, **sections: Any) -> Selector:
        """A selector for such a manifest."""
        return Selector.loads(json.dumps(self.tree(*entries, **sections)), "test.yaml")

    def findings(self, *entries: Tree, **sections: Any) -> list[str]:
        """What is wrong with such a manifest: code, message and fix."""
        text = json.dumps(self.tree(*entries, **sections), indent=1)
        found = read(read_text(text, "test.yaml"))[1].findings
        return [str(f).split(": ", 1)[1] for f in found]

    def layer(self, selector: Selector | None = None, /, **values: Any) -> Layer:
        """A plain layer: head size 128 in bfloat16; ``...`` leaves a field unknown."""
        known = {k: v for k, v in {**PLAIN, **values}.items() if v is not ...}
        return Layer.read(known, selector.manifest.vocabulary if selector else None)


@pytest.fixture(scope="session")
def build() -> Build:
    """Makes small manifests and layers."""
    return Build()
