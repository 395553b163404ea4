"""The rules of drafting: what a draft of a manifest leaves to whoever completes it."""

from __future__ import annotations

from selector.lint.catalogue import Rule
from selector.values import Severity

__all__ = ["DENSE_OFF", "LEFT_OUT", "NOT_DRAFTED", "NOT_KNOWN", "PROBED", "REFUSED_LATER", "TODOS"]

NOT_KNOWN = Rule(
    "DRF201",
    "todo-not-known",
    Severity.WARNING,
    "What a class accepts depends on more than its code, or could not be read. The draft states "
    "what is certainly accepted, so it refuses the rest. A note where no class speaks of a feature "
    "at all.",
    "The code tests a package, an environment variable or the engine's config; only whoever knows "
    "them can say it, with `cases:` over facts and fields.",
    "# TODO DRF201 sink: not known on 9.0: …",
    "sink: {cases: [{when: {has_mylib: true}, allow: any}, {allow: false}]}",
)
PROBED = Rule(
    "DRF202",
    "todo-probed",
    Severity.WARNING,
    "A method was asked with some values, and no list of the class says the same. The draft lists "
    "those that it accepts; what was not asked is refused.",
    "A list of tried values is not what the method says: it may accept all multiples of 8, or "
    "everything from 32 on.",
    "head_size: [32, 40, 48, 56, 64]   # TODO DRF202: the method says `head_size >= 32`",
    "head_size: {min: 32}",
)
DENSE_OFF = Rule(
    "DRF203",
    "todo-dense-prefill",
    Severity.WARNING,
    "Whether a sparse entry may compute prefill densely is for a person to decide: nobody stated "
    "it, a base class did, or the reason is not in the code. The draft says false.",
    "A sparse implementation for 12.0 that only inherited `true` crashed on every long prompt "
    "(vLLM pull request 51395).",
    "dense_prefill: false   # TODO DRF203: the class inherits True",
    "dense_prefill: false\nrationale: Only the top-k path exists on 12.x.\n"
    "revisit_when: the library ships a dense prefill for 12.x",
)
REFUSED_LATER = Rule(
    "DRF204",
    "todo-refused-later",
    Severity.WARNING,
    "The class claims a value that a constructor certainly refuses. The draft accepts what the "
    "constructor takes, and carries the claim under `claimed:`.",
    "The engine may change the value before the constructor sees it; then the entry accepts it, "
    "and `coerce:` says what it becomes.",
    "accepts: {kv_cache_dtype: [fp8_ds_mla]}   # TODO DRF204: the class claims auto",
    "accepts: {kv_cache_dtype: [auto, fp8_ds_mla]}\n"
    "coerce: {kv_cache_dtype: [{value: fp8_ds_mla}]}",
)
NOT_DRAFTED = Rule(
    "DRF205",
    "todo-not-drafted",
    Severity.WARNING,
    "What the code says here is not translated: tests of combinations, constructor tests of other "
    "arguments; or the language has no such statement. A note tells what no draft has: prefill "
    "paths, priorities, packages that are required.",
    "An entry without it accepts what the engine refuses, or the draft chooses nothing at all.",
    "# TODO DRF205 supports_combination (engine/flash.py:40) is not translated",
    'constraints:\n  - {code: SINK_SM90, when: {sink: true, capability: "<9.0"}, reason: …}',
)
LEFT_OUT = Rule(
    "DRF206",
    "todo-left-out",
    Severity.WARNING,
    "A backend of the registry has no entry in the draft: its class could not be read. A note "
    "where it registers no class, or names another platform than the one that was supposed.",
    "The engine can select it, and the draft knows nothing of it.",
    "# TODO DRF206 NO_ATTN: engine.no_attn.Backend names nothing that can be read",
    "backends:\n  - name: NO_ATTN",
)

TODOS = (NOT_KNOWN, PROBED, DENSE_OFF, REFUSED_LATER, NOT_DRAFTED, LEFT_OUT)
