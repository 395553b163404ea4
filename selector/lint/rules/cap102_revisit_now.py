"""CAP102: the version that `revisit_when` waits for has arrived."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from selector.document import Mapping
from selector.fields import LONGEST_VERSION
from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.statements import Said
from selector.manifest import Entry
from selector.values import Finding, Severity

_LATER = r"after|beyond|above|past|(?:later|newer) than"
_NAMED = re.compile(
    rf"(?:\b(?P<before>{_LATER})\s+)?(?<![A-Za-z0-9_.-])(?P<name>[A-Za-z][A-Za-z0-9_.-]*?)"
    rf"(?:\s+(?:version|release))?\s?\(?\s?(?P<op>>=|>|==|~=|from|since|{_LATER})?\s?"
    r"\bv?(?P<version>[0-9]{1,9}(?:\.[0-9]{1,9}){1,3}(?:(?:a|b|rc|\.post|\.dev)[0-9]+)?)(?![\w.]*x)"
)
_MOST = 2000  # characters of a text that are looked at


def _check(context: Context) -> Iterator[Finding]:
    for raw in context.tree["backends"]:
        for said in _revisits(raw):
            known = _known(context, context.manifest.entries[raw["name"]])
            waits = [w for w in _waits(said.text) if _plain(w[0]) in known]
            here = [(w, *known[_plain(w[0])]) for w in waits]
            arrived = [one for one in here if _reaches(one[1], one[0])]
            if arrived and (len(arrived) == len(waits) or _has_choice(said.text)):
                (name, later, wanted), version, where = arrived[0]
                yield RULE.finding(
                    said.at,
                    f"`revisit_when` waits for {name} {later}{wanted}, and {where} says {version}",
                    "look again: lift what it keeps off, or say what is waited for now",
                )


def _revisits(raw: Mapping) -> Iterator[Said]:
    for owner in (raw, *raw["phases"].values()):
        if "revisit_when" in owner:
            yield Said(owner["revisit_when"], owner.values_at["revisit_when"])


def _waits(text: str) -> Iterator[tuple[str, str, Version]]:
    """Every name with a version in a text: name, ``>`` where it must be later, version."""
    for match in _NAMED.finditer(" ".join(text[:_MOST].split())):
        later = match["before"] or match["op"] not in (None, ">=", "==", "~=", "from", "since")
        yield match["name"], "> " if later else "", Version(match["version"])


def _has_choice(text: str) -> bool:
    """Whether one of several things is enough; "0.8 or later" is no choice."""
    return re.search(r"\bor\b(?! (?:later|newer|above|higher))", text) is not None


def _reaches(version: Version, wait: tuple[str, str, Version]) -> bool:
    _, later, wanted = wait
    return version > wanted if later else version >= wanted


def _known(context: Context, entry: Entry) -> dict[str, tuple[Version, str]]:
    """Package → the latest version that the manifest says is there, and where it says so."""
    found: dict[str, tuple[Version, str]] = {}

    def add(name: str, version: Version, where: str) -> None:
        name = _plain(name)
        if name not in found or version > found[name][0]:
            found[name] = (version, where)

    ref = context.manifest.ref
    with suppress(InvalidVersion):  # a manifest may count its versions as it likes
        add(ref.name, Version(ref.version[:LONGEST_VERSION]), "the manifest's own version")
    for requirement in entry.requires:
        for version in _floors(requirement.specifier):
            add(requirement.fact, version, f"`requires` (line {requirement.position.line})")
    for said in _read(context, entry):
        for name, _, version in _waits(said.text):
            add(name, version, f"line {said.at.line}")
    return found


def _read(context: Context, entry: Entry) -> Iterator[Said]:
    """The texts that say which releases were read or run."""
    tree = context.tree
    raw = next(raw for raw in tree["backends"] if raw["name"] == entry.name)
    for node in (tree, raw):
        if "source" in node:
            yield Said(node["source"], node.values_at["source"])
    for key in ("evidence", "verified_on"):
        for text in raw.get(key, ()):
            yield Said(text, raw.values_at[key])
    facts = tree.get("facts", {})
    for name, fact in facts.items():
        for key in ("description", "source"):
            if key in fact:
                yield Said(f"{fact[key]}", facts.values_at[name])


def _floors(specifier: str | None) -> Iterator[Version]:
    """The versions that every release which satisfies a specifier has reached."""
    try:
        parts = SpecifierSet(specifier or "")
    except InvalidSpecifier:
        return
    for part in parts:
        if part.operator in (">=", ">", "~=") or (
            part.operator == "==" and not part.version.endswith(".*")
        ):
            yield Version(part.version)


def _plain(name: str) -> str:
    """A package's name as texts spell it: ``FlashInfer`` is ``flashinfer-python``."""
    return re.sub(r"[-_.]+", "-", name.lower().strip("-_.")).removesuffix("-python")


RULE = Rule(
    code="CAP102",
    name="revisit-now",
    severity=Severity.WARNING,
    what=(
        "A `revisit_when` names a package or engine with a version (`vllm 0.34`, "
        "`flashinfer-python >= 0.7.4`, `torch 2.13`), and the manifest itself already says that "
        "version or a later one: as its own version, in the entry's `requires`, or in the sources, "
        "facts or evidence that were read. Several that are named must all have arrived, unless "
        "`or` stands between them; those that the manifest has no version of are passed over. "
        "Words without a version (two numbers at least: `13.0`) are never a finding."
    ),
    why=(
        "A workaround that outlives its fault becomes a wrong claim of its own: FlashInfer stayed "
        "off on 7.5 after FlashInfer 0.6.16 had mended what kept it off (vLLM PR #55380)."
    ),
    bad="""requires: {flashinfer-python: ">=0.6.16"}
dense_prefill: false
rationale: Its kernels crashed (https://github.com/flashinfer-ai/flashinfer/issues/3620).
revisit_when: FlashInfer 0.6.16
""",
    good="""requires: {flashinfer-python: ">=0.6.14"}
dense_prefill: false
rationale: Its kernels crashed (https://github.com/flashinfer-ai/flashinfer/issues/3620).
revisit_when: FlashInfer 0.6.16
""",
    check=_check,
)
