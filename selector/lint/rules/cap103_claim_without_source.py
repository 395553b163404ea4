"""CAP103: a claim whose source cannot be looked up."""

from __future__ import annotations

import re
from collections.abc import Iterator

from selector.document import Mapping
from selector.fields import one_line
from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.statements import Said, points_somewhere, sources
from selector.values import Finding, Severity

_PLACEHOLDERS = """
todo tbd fixme xxx unknown none nil na n/a ? ?? ??? - -- . … ... docs documentation
me us somewhere here self obvious known
"""
_FILLERS = "a an the its see in read from my our this that"


def _check(context: Context) -> Iterator[Finding]:
    fillers, placeholders = _FILLERS.split(), _PLACEHOLDERS.split()
    blank = set()
    for said in sources(context):
        words = re.sub(r"[()\[\],;:]", " ", said.text.lower()).split()
        left = [word.rstrip(".") or word for word in words if word not in fillers]
        if all(word in placeholders for word in left):
            blank.add(said.at)
            yield RULE.finding(
                said.at,
                f'"{one_line(said.text)}" names no source',
                "name a link, or a release with the file, class or function",
            )
    for said in _of_claims(context):
        if said.at not in blank and not _can_be_found(said.text):
            yield RULE.finding(
                said.at,
                f'nothing in "{one_line(said.text)}" can be looked up',
                "name a link, or a release with the file, class or function",
            )
    if "source" not in context.tree:
        yield from _derived(context.tree)


def _of_claims(context: Context) -> Iterator[Said]:
    """The sources of entries, and of what engines claim instead; those of one anchor once."""
    seen = set()
    for raw in context.tree["backends"]:
        for node in (raw, raw.get("claimed")):
            if node is not None and (at := node.values_at["source"]) not in seen:
                seen.add(at)
                yield Said(node["source"], at)


def _can_be_found(text: str) -> bool:
    return points_somewhere(text) or re.search(r"[0-9]\.[0-9]", text) is not None


def _derived(tree: Mapping) -> Iterator[Finding]:
    """Derived values about devices without a source, in a manifest that names none itself."""
    derive = tree.get("derive", {})
    for name, raw in derive.items():
        rules = raw["first_match"]
        of_devices = any("capability" in rule.get("when", {}) for rule in rules)
        if of_devices and "source" not in raw and not any("source" in rule for rule in rules):
            yield RULE.finding(
                derive.keys_at[name],
                f"nothing says where {name} is read from",
                "give it a `source`, or the manifest one",
            )


RULE = Rule(
    code="CAP103",
    name="claim-without-source",
    severity=Severity.WARNING,
    what=(
        "A `source` that stands for none (`TODO`, `unknown`); a source of an entry or of a "
        "`claimed:` in which nothing can be looked up (no link, release, file, class or function), "
        "such as `the code`; or a derived value that asks for the device and has no source, in a "
        "manifest that has none either. What entries share by an anchor is found once."
    ),
    why=(
        "A claim that cannot be looked up cannot be checked when its library changes, and nobody "
        "can tell whether it was read, run or guessed. Two of the first claims in FastVideo's new "
        "table of capabilities were wrong, and only a review found them (FastVideo PR #1494)."
    ),
    bad="""source: the code
""",
    good="""source: "vLLM 0.33.0, vllm.v1.attention.backends.flash_attn.FlashAttentionBackend"
""",
    check=_check,
)
