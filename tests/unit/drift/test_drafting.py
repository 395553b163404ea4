"""Drafts of manifests, from small engines of vLLM's shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from selector.document import read_text
from selector.domains import Value
from selector.drift.against import compare
from selector.drift.drafting import Draft, draft_manifest
from selector.drift.drafting_yaml import Node, Text, Todo, write
from selector.drift.engines.vllm import READER
from selector.drift.machines import Machine
from selector.drift.modules import Modules
from selector.drift.reading import EngineReading
from selector.drift.saying import CAPABILITIES
from selector.drift.sources import open_source
from selector.drift.todo import NOT_KNOWN
from selector.lint.running import lint
from selector.loading import loads
from selector.manifest import Manifest
from selector.values import Phase, Severity

from .conftest import write_package
from .test_vllm import engine_files

Changes = Mapping[tuple[str, str], str]
"""Module and its text → what stands there instead."""
STATES_IT = "    supports_dense_mha_prefill = False\n"
SPARSE = "class SparseBackend(AttentionBackend):\n"
HEADS = "    @classmethod\n    def get_supported_head_sizes(cls):\n        return [64"
MLA_SPARSE = f"""{SPARSE}    @classmethod
    def is_mla(cls):
        return True

    @classmethod
    def is_sparse(cls):
        return True

"""
ON_SM120 = f"""{MLA_SPARSE}    @classmethod
    def supports_compute_capability(cls, capability):
        return capability.major == 12

"""

TOGETHER = f"""    @classmethod
    def supports_combination(
        cls, head_size, dtype, kv_cache_dtype, block_size, use_mla, has_sink, use_sparse,
        use_mm_prefix, device_capability,
    ):
        if kv_cache_dtype == "fp8" and head_size in (128, 256) and device_capability.major == 9:
            return "no such kernel"
        if device_capability.major == 11:
            return "none at all"
        return None

{HEADS}"""


class Drafted:
    """A draft, and the reading that it was made of."""

    def __init__(self, reading: EngineReading) -> None:
        self.reading = reading
        self.draft: Draft = draft_manifest(reading, "draft.yaml")
        self.manifest: Manifest = loads(self.draft.text, "draft.yaml")

    def accepts(self, entry: str, field: str, value: Value, on: str, claimed: bool = False) -> bool:
        manifest = self.manifest.as_claimed() if claimed else self.manifest
        said = Machine(manifest, "cuda", on).accepts(manifest.entries[entry], field, value)
        assert said is not None
        return said

    def todo(self, code: str, words: str) -> str:
        """The message of the one finding with this code that begins so."""
        found = [f.message for f in self.draft.findings if f.code == code]
        (message,) = [one for one in found if one.startswith(words)]
        return message

    def codes(self, words: str) -> set[str]:
        return {one.code for one in self.draft.findings if one.message.startswith(words)}


ENGINES: dict[str, Changes] = {
    "as it is": {},
    "sparse, stated false": {("sparse", SPARSE): MLA_SPARSE},
    "sparse, inherited": {("sparse", SPARSE): MLA_SPARSE, ("sparse", STATES_IT): ""},
    "12.x, inherited": {("sparse", SPARSE): ON_SM120, ("sparse", STATES_IT): ""},
    "12.x, stated true": {
        ("sparse", SPARSE): ON_SM120,
        ("sparse", STATES_IT): STATES_IT.replace("False", "True"),
    },
    "sparse, not latent": {
        ("sparse", SPARSE): MLA_SPARSE.replace("True", "False", 1),
        ("sparse", STATES_IT): "",
    },
    "a dense prefill that is not known": {
        ("sparse", SPARSE): MLA_SPARSE,
        ("sparse", STATES_IT): "    supports_dense_mha_prefill = __import__('other').yes\n",
    },
    "sparse, without implementation": {
        ("sparse", SPARSE): MLA_SPARSE,
        ("sparse", "return SparseSM120Impl"): "raise NotImplementedError('its model does it')",
    },
    "open ended": {("flash", " and capability.major < 12"): ""},
    "old ones and future ones": {("flash", "capability.major < 12"): "capability.major != 9"},
    "no architecture": {("flash", "capability >= DeviceCapability(8, 0)"): "False"},
    "an architecture that is not known": {
        ("flash", "return capability >= "): "return other_package.ok() and capability >= "
    },
    "every cache dtype": {("backend", "kv_cache_dtype in cls.supported_kv_cache_dtypes"): "True"},
    "no cache dtype": {("backend", 'supported_kv_cache_dtypes = ["auto"]'): "none = []"},
    "head sizes that no list says": {
        ("flash", HEADS): "    @classmethod\n    def supports_head_size(cls, size):\n"
        f"        return size % 8 == 0 and size <= 256\n\n{HEADS}"
    },
    "a kind that is not known": {
        ("sparse", SPARSE): MLA_SPARSE.replace("True", "__import__('other').yes")
    },
    "values that do not go together": {("flash", HEADS): TOGETHER},
    "a broken module": {("sparse", "class SparseBackend"): "class class SparseBackend"},
}


@pytest.fixture
def drafted(tmp_path: Path) -> Callable[..., Drafted]:
    """The draft of an engine after changes of its modules."""

    def make(changes: Changes = ENGINES["as it is"]) -> Drafted:
        files = engine_files()
        for (name, old), new in changes.items():
            path = f"vllm/v1/attention/{name}.py"
            assert old in files[path]
            files[path] = files[path].replace(old, new)
        source = open_source(write_package(tmp_path, files), "vllm")
        return Drafted(READER.read(Modules(source), CAPABILITIES))

    return make


@pytest.mark.parametrize("name", ENGINES)
def test_a_draft_agrees_with_the_code_that_it_was_drafted_from(drafted, name: str) -> None:
    made = drafted(ENGINES[name])
    found = compare(made.manifest, made.reading)
    errors = [one for one in found if one.severity is Severity.ERROR]
    assert [one for one in errors if not one.code.startswith("DRF10")] == []
    missing = {"COMPOSITE", "FLASH", "SPARSE_SM120", "FLASH_MLA_PREFILL"} - {*made.manifest.entries}
    assert missing == ({"SPARSE_SM120"} if name == "a broken module" else set())


@pytest.mark.parametrize("name", ENGINES)
def test_a_draft_has_no_errors_of_lint(drafted, name: str) -> None:
    text = drafted(ENGINES[name]).draft.text
    found = [str(one) for one in lint(read_text(text, "draft.yaml")) if one.code < "CAP1"]
    assert found == []


@pytest.mark.parametrize("name", ENGINES)
def test_every_finding_stands_at_its_comment_and_every_comment_is_a_finding(drafted, name) -> None:
    made = drafted(ENGINES[name])
    lines = made.draft.text.splitlines()
    todos = [one for one in made.draft.findings if one.code.startswith("DRF2")]
    for one in todos:
        assert lines[one.line - 1][one.column - 1 :].startswith(f"# TODO {one.code} ")
    marked = [n for n, line in enumerate(lines, 1) if line.lstrip().startswith("# TODO")]
    assert sorted(one.line for one in todos) == marked
    assert max(map(len, lines)) <= 120


def test_the_same_engine_gives_the_same_bytes(drafted) -> None:
    assert drafted().draft == drafted().draft


def test_lists_and_architectures_are_stated_as_the_class_has_them(drafted) -> None:
    made = drafted()
    assert "      head_size: [64, 128, 256]\n" in made.draft.text
    assert "      dtype: any\n" in made.draft.text  # no method is asked for it
    assert (
        '      capability: ["8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "10.7", "11.0"]\n'
        in (made.draft.text)
    )
    assert "vllm.v1.attention.flash.FlashBackend (vllm/v1/attention/flash.py:6)" in made.draft.text
    source = made.manifest.entries["FLASH"].sources["head_size"]
    assert source == "FlashBackend.get_supported_head_sizes (vllm/v1/attention/flash.py:14)"


def test_what_differs_by_architecture_becomes_cases(drafted) -> None:
    made = drafted()
    assert not made.accepts("FLASH", "sink", True, "8.9")
    assert made.accepts("FLASH", "sink", True, "9.0")
    assert '- {when: {capability: "<9.0"}, allow: false}' in made.draft.text


def test_an_open_end_is_stated_as_one(drafted) -> None:
    made = drafted(ENGINES["open ended"])
    assert '      capability: ">=8.0"\n' in made.draft.text
    assert made.manifest.as_claimed().entries["FLASH"].claimed is not None  # kv_cache_dtype only
    gap = drafted(ENGINES["old ones and future ones"])
    assert '"8.9", ">=10.0"]' in gap.draft.text
    assert made.codes("FLASH capability") == gap.codes("FLASH capability") == set()


def test_what_depends_on_more_is_refused_and_left_to_do(drafted) -> None:
    made = drafted()
    assert not made.accepts("FLASH", "mm_prefix", True, "9.0")
    message = made.todo("DRF201", "FLASH mm_prefix: whether it is accepted is not known on 8.0")
    assert "other_package.version()" in message
    none = drafted(ENGINES["an architecture that is not known"])
    assert "DRF201" in none.codes("FLASH capability")
    assert not none.accepts("FLASH", "capability", 900, "9.0")


def test_values_that_were_only_tried_are_listed_and_left_to_do(drafted) -> None:
    made = drafted(ENGINES["head sizes that no list says"])
    assert made.accepts("FLASH", "head_size", 96, "9.0")
    assert not made.accepts("FLASH", "head_size", 232, "9.0")  # was not asked
    made.todo("DRF202", "FLASH head_size: FlashBackend.supports_head_size (vllm/v1/attention/flash")
    assert drafted().codes("FLASH head_size") == set()


@pytest.mark.parametrize(
    ("listed", "test", "written"),
    [
        ("[MultipleOf(16)]", "size % 16 == 0", "{multiple_of: 16, or: [unset]}"),
        ("[16, 32, 64]", "size % 16 == 0", "{multiple_of: 16, or: [unset]}"),
        ("[32, 48]", "size % 32 == 0 or size % 48 == 0",
         "[unset, {multiple_of: 32}, {multiple_of: 48}]"),
        ("[16, 32, 64]", "size in (16, 32, 64)", "[unset, 16, 32, 64]"),
        ("[16, MultipleOf(64)]", "size == 16 or size % 64 == 0", "[unset, 16, {multiple_of: 64}]"),
        ("[MultipleOf(1)]", "True", "any"),
        ("[]", "True", "any"),
    ],
)  # fmt: skip
def test_the_answers_decide_what_a_list_means(
    drafted, listed: str, test: str, written: str
) -> None:
    methods = (
        f"    @classmethod\n    def get_supported_kernel_block_sizes(cls):\n"
        f"        return {listed}\n\n    @classmethod\n    def supports_block_size(cls, size):\n"
        f"        return size is None or {test}\n\n"
    )
    multiple = "from typing import NamedTuple\n\nclass MultipleOf(NamedTuple):\n    base: int\n\n"
    flash = "class FlashBackend"
    made = drafted({("flash", HEADS): methods + HEADS, ("flash", flash): multiple + flash})
    assert f"      block_size: {written}\n" in made.draft.text
    assert made.codes("FLASH block_size") == set()


def test_the_entry_states_what_the_constructor_takes_and_carries_the_claim(drafted) -> None:
    made = drafted()
    assert not made.accepts("FLASH", "kv_cache_dtype", "fp8", "8.6")
    assert made.accepts("FLASH", "kv_cache_dtype", "fp8", "8.9")
    assert made.accepts("FLASH", "kv_cache_dtype", "fp8", "8.6", claimed=True)
    message = made.todo("DRF204", "FLASH kv_cache_dtype: the class claims fp8, and ")
    assert "FlashImpl.__init__ (vllm/v1/attention/flash.py:" in message
    assert " raises on 8.0, 8.6, 8.7; " in message
    claimed = made.manifest.entries["FLASH"].claimed
    assert claimed is not None
    assert claimed.source.startswith("FlashBackend.supported_kv_cache_dtypes (vllm/")
    assert not made.accepts("SPARSE_SM120", "kv_cache_dtype", "auto", "12.0")
    assert made.accepts("SPARSE_SM120", "kv_cache_dtype", "auto", "12.0", claimed=True)


@pytest.mark.parametrize("name", ["sparse, inherited", "12.x, inherited"])
def test_an_inherited_dense_prefill_is_never_written_as_true(drafted, name: str) -> None:
    made = drafted(ENGINES[name])
    entry = made.manifest.entries["SPARSE_SM120"]
    assert (entry.mla, entry.sparse, entry.dense_prefill) == (True, True, False)
    message = made.todo("DRF203", "SPARSE_SM120 dense_prefill: ")
    for words in (message, entry.rationale):
        assert words is not None
        assert "SparseSM120Impl (vllm/v1/attention/sparse.py:" in words
        assert "inherits True from ImplBase (vllm/v1/attention/backend.py:" in words
        assert "raises NotImplementedError" in words
    assert entry.claimed is not None
    assert entry.claimed.dense_prefill is True
    assert "ImplBase.supports_dense_mha_prefill" in entry.claimed.source


def test_a_stated_false_says_where_and_asks_why(drafted) -> None:
    made = drafted(ENGINES["sparse, stated false"])
    entry = made.manifest.entries["SPARSE_SM120"]
    assert entry.dense_prefill is False
    assert entry.claimed is None or entry.claimed.dense_prefill is None
    message = made.todo("DRF203", "SPARSE_SM120 dense_prefill: SparseSM120Impl.")
    assert message.endswith("states false; say why")
    assert entry.rationale is not None
    assert "SparseSM120Impl.supports_dense_mha_prefill (vllm/v1/attention/sparse.py:" in (
        entry.rationale
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a dense prefill that is not known", "is not known: vllm/v1/attention/sparse.py:"),
        ("sparse, not latent", "only layers with a latent ask for it"),
        ("sparse, without implementation", "has no implementation class: raises NotImpl"),
        ("12.x, stated true", "SparseSM120Impl.supports_dense_mha_prefill (vllm/v1"),
    ],
)
def test_any_other_dense_prefill_is_off_too_and_left_to_do(drafted, name: str, words: str) -> None:
    made = drafted(ENGINES[name])
    assert made.manifest.entries["SPARSE_SM120"].dense_prefill is False
    assert words in made.todo("DRF203", "SPARSE_SM120 dense_prefill: ")


def test_a_sparse_entry_lists_architectures_and_carries_an_open_end_as_a_claim(drafted) -> None:
    made = drafted(ENGINES["sparse, stated false"])
    assert not made.accepts("SPARSE_SM120", "capability", 9900, "99.0")
    assert made.accepts("SPARSE_SM120", "capability", 9900, "99.0", claimed=True)
    assert made.accepts("SPARSE_SM120", "capability", 1200, "12.0")
    made.todo("DRF205", "SPARSE_SM120 capability: AttentionBackend.supports_compute_capability")


def test_a_backend_without_an_entry_is_told(drafted) -> None:
    made = drafted({("backends/registry", "    COMPOSITE ="): "    ROCM_COMPOSITE ="})
    found = {f.message.split(":")[0]: f for f in made.draft.findings if f.code == "DRF206"}
    assert {name: str(one.severity) for name, one in found.items()} == {
        "ROCM_COMPOSITE": "note", "GONE": "warning", "UNSET": "note", "CUSTOM": "note",
    }  # fmt: skip
    assert "another platform (rocm)" in found["ROCM_COMPOSITE"].message
    assert "names nothing that can be read" in found["GONE"].message
    assert made.draft.entries == len(made.manifest.entries) == 3


def test_what_is_refused_only_together_becomes_a_constraint(drafted) -> None:
    made = drafted(ENGINES["values that do not go together"])
    constraints = made.manifest.entries["FLASH"].phases[Phase.DECODE].constraints
    assert [one.code for one in constraints] == ["COMBINATION", "COMBINATION"]
    text = made.draft.text
    assert 'when: {capability: ["9.0"], head_size: [128, 256], kv_cache_dtype: fp8}\n' in text
    assert 'when: {capability: ["11.0"]}\n' in text
    made.todo("DRF202", "FLASH supports_combination: FlashBackend.supports_combination (vllm/v1")
    assert drafted().codes("FLASH supports_combination") == set()


def test_tests_that_no_field_holds_are_left_to_do(drafted) -> None:
    head = "    @classmethod\n    def supports_other(cls, size):\n"
    own = f"{head}        return other_package.takes(size)\n\n{HEADS}"
    made = drafted(
        {
            ("flash", HEADS): own,
            (
                "flash",
                "def __init__(self, kv_cache_dtype):\n",
            ): "def __init__(self, kv_cache_dtype, "
            "sharing=None):\n        if sharing is not None:\n            raise ValueError('no')\n",
        }
    )
    made.todo("DRF205", "FLASH supports_other: FlashBackend.supports_other (vllm/v1")
    assert "FlashImpl.__init__ (vllm/v1/attention/flash.py:" in made.todo(
        "DRF205", "FLASH constructor: raises under tests that are not translated"
    )
    assert made.codes("COMPOSITE supports_other") == set()


def test_prefill_backends_serve_prefill_only(drafted) -> None:
    made = drafted()
    entry = made.manifest.entries["FLASH_MLA_PREFILL"]
    assert (entry.mla, entry.sparse, [*map(str, entry.phases)]) == (True, False, ["prefill"])
    made.todo("DRF202", "FLASH_MLA_PREFILL supports_mla_dimensions: MLAPrefillBackend.")
    (constraint,) = entry.phases[Phase.PREFILL].constraints
    assert constraint.code == "MLA_DIMENSIONS"
    required = "        require: {qk_nope_head_dim: 128, qk_rope_head_dim: 64, v_head_dim: 128}\n"
    assert required in made.draft.text
    made.todo("DRF201", "FLASH_MLA_PREFILL head_size, dtype, kv_cache_dtype, block_size, attn_type")


def test_a_list_is_not_taken_for_multiples_where_no_answer_says_so(drafted) -> None:
    made = drafted({("flash", "return [64, 128, 256]"): "return [576]"})
    assert "      head_size: [576]\n" in made.draft.text


def test_any_is_not_said_where_no_value_at_all_is_refused(drafted) -> None:
    methods = (
        "    @classmethod\n    def get_supported_kernel_block_sizes(cls):\n        return []\n\n"
        "    @classmethod\n    def supports_block_size(cls, size):\n"
        "        return size is not None\n\n"
    )
    made = drafted({("flash", HEADS): methods + HEADS})
    assert not made.accepts("FLASH", "block_size", "unset", "9.0")
    assert made.accepts("FLASH", "block_size", 16, "9.0")
    assert made.codes("FLASH block_size") == {"DRF202"}


def test_whatever_code_holds_is_shown_on_lines_that_yaml_reads_as_they_are() -> None:
    shown = "a: b # c\n\x1b[2J\u2028\ud800 - 'd'"
    todo = Todo(NOT_KNOWN, "E", "f", shown)
    words = {"a": "9.0", "b": "yes", "c": "12:30", "d": shown, "e": "10.x", "f": "a_b"}
    nodes = [Node("key", words, (todo,)), Node("text", Text(f"{shown} " * 20))]
    text, (finding,) = write([shown], nodes, "draft.yaml")
    assert all(line.isprintable() for line in text.splitlines())
    tree = read_text(text, "draft.yaml").tree
    assert tree is not None
    assert [*tree["key"].values()][:3] == ["9.0", "yes", "12:30"]
    assert tree["key"]["d"] == "a: b # c \\x1b[2J \\ud800 - 'd'"
    assert tree["text"].startswith("a: b # c \\x1b[2J")
    assert finding.message == "E f: a: b # c \\x1b[2J \\ud800 - 'd'"
