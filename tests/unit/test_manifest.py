"""A manifest as a value: its entries by name, what a policy forces, and what it could be."""

from __future__ import annotations

from typing import Any

import pytest

from selector import Phase, Policy, Selector
from selector.errors import UnknownBackendError
from selector.manifest import Manifest

from .sparse import DENSE, Build, Tree, layer, sparse

PINNED: Tree = {
    "dense_prefill": False,
    "rationale": "It crashes.",
    "pinned": ["dense_prefill"],
}


# -- entries by name -----------------------------------------------------------------------------


def test_an_entry_is_found_by_its_name(build: Build) -> None:
    manifest = build.selector(build.entry("flash"), build.entry("paged")).manifest
    assert manifest.entry("paged") is manifest.entries["paged"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("flahs", 'no backend is called "flahs"; did you mean flash?'),
        ("page", 'no backend is called "page"; did you mean paged?'),
        ("zzz", 'no backend is called "zzz"'),
        ("", 'no backend is called ""'),
        ("a\nb", 'no backend is called "a b"'),
    ],
)
def test_a_name_that_no_entry_has_is_an_error_that_names_the_nearest(
    build: Build, name: str, said: str
) -> None:
    manifest = build.selector(build.entry("flash"), build.entry("paged")).manifest
    with pytest.raises(UnknownBackendError) as caught:
        manifest.entry(name)
    assert str(caught.value) == said


# -- what a policy forces ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "forced"),
    [
        (Policy(), (None, None)),
        (Policy(backend="both"), ("both", "both")),
        (Policy(backend="decodes"), (None, "decodes")),
        (Policy(prefill_backend="decodes"), ("decodes", None)),
        (Policy(decode_backend="both"), (None, "both")),
        (Policy(backend="both", decode_backend="decodes"), ("both", "decodes")),
        (Policy({"both": "not today"}, "both"), ("both", "both")),
    ],
    ids=str,
)
def test_what_is_forced_in_each_phase(
    build: Build, policy: Policy, forced: tuple[str | None, str | None]
) -> None:
    """One for both phases where it serves them; one for a phase there, whether or not it does."""
    entries = (build.entry("both"), build.entry("decodes", phases={"decode": {}}))
    manifest = build.selector(*entries).manifest
    assert (manifest.forced(policy, Phase.PREFILL), manifest.forced(policy, Phase.DECODE)) == forced


@pytest.mark.parametrize("key", ["backend", "prefill_backend", "decode_backend"])
def test_what_is_forced_must_be_there(build: Build, key: str) -> None:
    manifest = build.selector(build.entry("both")).manifest
    phase = Phase.DECODE if key == "decode_backend" else Phase.PREFILL
    with pytest.raises(UnknownBackendError, match='"bth"; did you mean both'):
        manifest.forced(Policy(**{key: "bth"}), phase)


# -- what it could be ----------------------------------------------------------------------------


def test_supposing_dense_prefill_changes_sparse_entries_and_nothing_else(build: Build) -> None:
    free = {**sparse(build, DENSE, dense_prefill_except=[{"when": {"sink": True}, "reason": "R."}])}
    free["name"] = "free"
    manifest: Manifest = build.selector(
        sparse(build, DENSE, **PINNED), free, build.entry("plain")
    ).manifest
    supposed = manifest.supposing_dense_prefill()
    changed = {n for n, e in supposed.entries.items() if e != manifest.entries[n]}
    assert changed == {"sparse", "free"}
    assert all(supposed.entries[n].dense_prefill for n in changed)
    assert all(supposed.entries[n].dense_prefill_except == () for n in changed)
    assert supposed.priorities == manifest.priorities
    assert (supposed.ref.name, supposed.ref.file) == (manifest.ref.name, manifest.ref.file)


def test_what_is_supposed_is_not_what_is_stated(build: Build) -> None:
    """An answer says by its digest which manifest gave it."""
    manifest = build.selector(sparse(build, DENSE, **PINNED)).manifest
    digests = {
        manifest.ref.digest,
        manifest.as_claimed().ref.digest,
        manifest.supposing_dense_prefill().ref.digest,
    }
    assert len(digests) == 3
    assert manifest.supposing_dense_prefill().ref == manifest.supposing_dense_prefill().ref
    assert manifest.entries["sparse"].dense_prefill is False


EXCEPT = {"dense_prefill_except": [{"when": {"head_size": 128}, "reason": "It crashes."}]}


@pytest.mark.parametrize("keys", [PINNED, EXCEPT], ids=["pinned", "except"])
@pytest.mark.parametrize(("contract", "path"), [(True, "dense_mha"), (False, "sparse_mqa")])
def test_a_dense_path_is_taken_where_it_is_supposed_to_be_there(
    build: Build, keys: Tree, contract: bool, path: str
) -> None:
    """But not against the layer's own contract."""
    selector = build.selector(sparse(build, DENSE, **keys))
    asked = layer(build, dense_prefill=contract)
    stated = selector.bind("9.0", asked).resolve(8, 8)
    assert stated.prefill.path == "sparse_mqa"
    assert [o.path for o in stated.off] == ["dense_mha"]
    supposed = Selector(selector.manifest.supposing_dense_prefill()).bind("9.0", asked)
    answer = supposed.resolve(8, 8)
    assert answer.prefill.path == path
    assert [o.path for o in answer.off] == ([] if contract else ["dense_mha"])


# -- what could not be meant ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        {"dense_prefill_except": [{"when": {}, "reason": "Always."}]},
        {"dense_prefill": False, "rationale": "It crashes.", **EXCEPT},
    ],
    ids=["without a condition", "of nothing"],
)
def test_an_exception_that_says_nothing_is_a_finding(build: Build, keys: Tree) -> None:
    assert build.findings(sparse(build, DENSE, **keys))


def test_a_list_without_an_order_is_a_finding(build: Any) -> None:
    (found,) = build.findings(priorities=[{"reason": "None."}])
    assert found == "CAP008 a list without an order; give `order`, or one of a phase"
