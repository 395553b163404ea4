"""CAP110: a package requirement that no release satisfies."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.values import Finding, Severity

_MOST_PARTS = 40
"""Of a specifier; honest ones have two or three."""


def _check(context: Context) -> Iterator[Finding]:
    for entry in context.manifest.entries.values():
        for requirement in entry.requires:
            if requirement.specifier and _is_impossible(requirement.specifier):
                yield RULE.finding(
                    requirement.position,
                    f'no release of {requirement.fact} satisfies "{requirement.specifier}"',
                    "correct the versions; all parts must hold at once",
                )


def _is_impossible(specifier: str) -> bool:
    """Whether no final release satisfies a specifier of final releases.

    Each part is a comparison with a release or a prefix, so what is satisfied changes at these
    only: one release at each of them and one right behind it tell everything.
    """
    parts = list(SpecifierSet(specifier))
    if len(parts) > _MOST_PARTS or any(part.operator == "===" for part in parts):
        return False
    named = [Version(part.version.removesuffix(".*")) for part in parts]
    if any(v.pre or v.post is not None or v.dev is not None or v.local for v in named):
        return False
    longest = max(len(v.release) for v in named) + 1
    releases = {(v.epoch, v.release) for v in named} | {(0, (0,))}
    releases |= {(epoch, (*r[:-1], r[-1] + 1)) for epoch, r in releases}
    releases |= {(epoch, r[:-1]) for epoch, r in releases if len(r) > 1}
    behind = {(e, (*r, *[0] * (longest - len(r)), 1)) for e, r in releases}
    every = SpecifierSet(specifier)
    tried = (f"{epoch}!{'.'.join(map(str, release))}" for epoch, release in releases | behind)
    return not any(every.contains(Version(version)) for version in tried)


RULE = Rule(
    code="CAP110",
    name="impossible-requirement",
    severity=Severity.ERROR,
    what=(
        "A version specifier in `requires` that no release can satisfy, whatever is published: "
        "`>=2,<1`, `==1.0,!=1.0`, `~=1.4,<1.4`. Specifiers that name pre-releases, "
        "post-releases, development releases or arbitrary versions (`===`) are not judged."
    ),
    why="The entry is unavailable on every machine, and an answer says to install what cannot be.",
    bad="""requires: {flashinfer-python: ">=0.7,<0.6.16"}
""",
    good="""requires: {flashinfer-python: ">=0.6.16,<0.8"}
""",
    check=_check,
)
