"""CAP101: a rationale that says nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from selector.document import Mapping
from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.statements import Said, points_somewhere
from selector.values import Finding, Severity

_EMPTY_WORDS = """
a an and any are at available be because been by can cannot currently dense dense_prefill disabled
do does doesn't enabled exist exists false feature for has have here implemented in is isn't it its
known may mode must never no none not nothing now of off on only option path phase possible prefill
support supported supporting supports switched that the there this to todo true tbd unsupported
untested used was were will with work works yet
"""
"""Words that only say again that something is off."""
_FEWEST = 2


def _check(context: Context) -> Iterator[Finding]:
    empty = frozenset(_EMPTY_WORDS.split())
    seen: dict[str, tuple[str, Said]] = {}
    for raw in context.tree["backends"]:
        for owner, said in _rationales(raw):
            words = [w.strip(".'-") for w in re.findall(r"[\w.'-]+", said.text.lower())]
            shown = bool(owner.get("evidence") or raw.get("evidence") or raw.get("verified_on"))
            if len([w for w in words if w not in empty]) < (1 if shown else _FEWEST):
                yield RULE.finding(
                    said.at,
                    "`rationale` says only that it is off",
                    "say what goes wrong otherwise, and where that can be read",
                )
                continue
            first, known = seen.setdefault(" ".join(words), (raw["name"], said))
            if known.at != said.at and not _is_alias(context, said):
                place = f"{known.at.file}:{known.at.line}"
                yield RULE.finding(
                    said.at,
                    f"`rationale` is copied from {first} ({place})",
                    "say what holds of this entry, or share the words by an alias",
                )
            elif not shown and not points_somewhere(said.text, _language(context)):
                yield RULE.finding(
                    said.at,
                    "`rationale` names nothing that can be looked up",
                    "give a link in `evidence`, or name the release, file, class or function",
                )


def _is_alias(context: Context, said: Said) -> bool:
    """Whether the text stands elsewhere, and an alias repeats it here."""
    line = context.texts[said.at.file].split("\n")[said.at.line - 1]
    return line[said.at.column - 1 :].startswith("*")


def _rationales(raw: Mapping) -> Iterator[tuple[Mapping, Said]]:
    for owner in (raw, *raw["phases"].values()):
        if "rationale" in owner:
            yield owner, Said(owner["rationale"], owner.values_at["rationale"])


def _language(context: Context) -> frozenset[str]:
    paths = ("dense_mha", "masked_mha", "sparse_mqa", "prefill_paths", "decode_threshold")
    return context.manifest.vocabulary.spellings.union(paths)


RULE = Rule(
    code="CAP101",
    name="hollow-rationale",
    severity=Severity.WARNING,
    what=(
        "A `rationale` that says nothing: it only repeats that something is off, it is copied word "
        "for word from another entry, or it names nothing that can be looked up. A link in "
        "`evidence` beside it is enough; so is a release, file, class or function in its words. "
        "Entries that share one reason share it by an alias: then it is one statement."
    ),
    why=(
        "A rationale is what the next person reads before turning a thing back on. Where it says "
        "nothing, somebody flips the switch and finds out again what it kept from happening: on "
        "compute capability 12.x, a crash at every long prompt (vLLM PR #51395)."
    ),
    bad="""dense_prefill: false
rationale: Not supported.
""",
    good="""dense_prefill: false
rationale: The kernels have the top-k path only; the dense path reads state that they never set.
evidence: ["https://github.com/vllm-project/vllm/pull/51395"]
""",
    check=_check,
)
