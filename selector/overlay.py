"""An overlay: local changes to a manifest that somebody else keeps.

An overlay replaces keys of entries by name (field by field in ``accepts`` and ``requires``), adds
entries, puts its ``priorities`` before the manifest's and its ``deny`` after them. It cannot
touch a key that the entry pins. The result is one document, checked like any other.
"""

from __future__ import annotations

from selector.document import Document, Mapping, Sequence
from selector.parsing import locate
from selector.schema import check
from selector.values import Position

__all__ = ["apply_overlay"]

_FIELDWISE = ("accepts", "requires", "sources")


def apply_overlay(base: Document, overlay: Document) -> Document:
    """The base document with the overlay applied; findings of both are in the result.

    The base's tree is not changed.
    """
    merged = Document(base.file, None, base.text, [*base.findings, *overlay.findings])
    merged.anchors = [*base.anchors, *overlay.anchors]
    if base.tree is None or overlay.tree is None:
        return merged
    for tree, schema in ((base.tree, "manifest"), (overlay.tree, "overlay")):
        for fault in check(tree, schema):
            at = locate(tree, fault.path, fault.at_key)
            merged.report(fault.code, at, fault.message, fault.fix)
            if merged.full:
                break
    if merged.broken:
        return merged
    tree = _copy(base.tree)
    if "backends" in overlay.tree:
        _put(tree, "backends", _merge_entries(merged, base.tree, overlay.tree["backends"]), tree)
    for key, first in (("priorities", True), ("deny", False)):
        if key in overlay.tree:
            mine, theirs = overlay.tree[key], base.tree.get(key, Sequence(base.tree.position))
            joined = _join(mine, theirs) if first else _join(theirs, mine)
            _put(tree, key, joined, overlay.tree)
    if "facts" in overlay.tree:
        facts = _update(base.tree.get("facts", Mapping(tree.position)), overlay.tree["facts"])
        _put(tree, "facts", facts, overlay.tree)
    _put(tree, "name", f"{base.tree['name']}+{overlay.tree['overlay']}", tree)
    merged.tree = tree
    return merged


def _merge_entries(merged: Document, base: Mapping, changes: Sequence) -> Sequence:
    entries = _join(base["backends"], Sequence(changes.position))
    places = {entry.get("name"): i for i, entry in enumerate(entries)}
    for change, at in zip(changes, changes.items_at, strict=True):
        place = places.get(change["name"])
        if place is None:
            entries.append(change)
            entries.items_at.append(at)
        else:
            entries[place] = _merge_entry(merged, entries[place], change)
    return entries


def _merge_entry(merged: Document, entry: Mapping, change: Mapping) -> Mapping:
    pinned = {*entry.get("pinned", ())}
    if pinned:
        pinned |= {"pinned", "claimed"}  # a claim is an answer too, with --as-claimed
    if "dense_prefill" in pinned:
        pinned.add("dense_prefill_except")
    result = _copy(entry)
    for key, value in change.items():
        if key in pinned and entry.get(key) != value:
            at, where = change.keys_at[key], entry.keys_at.get(key, entry.position)
            why = entry.get("rationale", "no rationale is given")
            message = f"`{key}` of {entry['name']} is pinned at {where}"
            merged.report("CAP026", at, message, f"remove it; pinned because: {why}")
        elif (
            key in _FIELDWISE and isinstance(entry.get(key), Mapping) and isinstance(value, Mapping)
        ):
            _put(result, key, _update(entry[key], value), change)
        else:
            _put(result, key, value, change)
    return result


def _copy(node: Mapping) -> Mapping:
    return _update(Mapping(node.position), node)


def _update(node: Mapping, other: Mapping) -> Mapping:
    result = Mapping(node.position)
    for source in (node, other):
        for key, value in source.items():
            _put(result, key, value, source)
    return result


def _put(node: Mapping, key: str, value: object, source: Mapping) -> None:
    """Sets a key, with the positions it has in ``source``."""
    fallback: Position = source.position
    node[key] = value
    node.keys_at[key] = source.keys_at.get(key, fallback)
    node.values_at[key] = source.values_at.get(key, fallback)


def _join(first: Sequence, second: Sequence) -> Sequence:
    result = Sequence(first.position)
    for source in (first, second):
        result.extend(source)
        result.items_at.extend(source.items_at)
    return result
