"""The rules of drift: what each finding means, and why it matters."""

from __future__ import annotations

from selector.drift.todo import TODOS
from selector.lint.catalogue import Rule
from selector.values import Severity

__all__ = [
    "CLAIM",
    "DENSE",
    "GONE",
    "INHERITED",
    "LOOSER",
    "OPEN_ENDED",
    "REFUSED",
    "RULES",
    "UNDECIDED",
    "UNEVEN",
    "UNLISTED",
    "UNREAD",
    "WIDENED",
]

CLAIM = Rule(
    "DRF001",
    "claim-differs",
    Severity.ERROR,
    "The manifest says that a backend accepts a value, and the class says that it does not, or the "
    "reverse. What the manifest says is `claimed:`, where it is given, else `accepts:`.",
    "The manifest then selects what the engine refuses, or passes over what it would take.",
    "accepts: {head_size: [64, 128]}   # get_supported_head_sizes returns [64, 128, 256]",
    "accepts: {head_size: [64, 128, 256]}",
)
DENSE = Rule(
    "DRF002",
    "inherited-dense-prefill",
    Severity.ERROR,
    "A sparse implementation says nothing of its dense prefill and inherits from a base class that "
    "it has one. An error where the manifest says `dense_prefill: false`, a warning where both say "
    "that there is one, a note where no MLA layer is concerned: only those ask.",
    "Nobody decided it: the router of prefills believes what the base says. A sparse MLA "
    "implementation for 12.0 crashed on every long prompt for that reason (vLLM pull request "
    "51395).",
    "class SparseImpl(Base): ...   # Base: supports_dense_mha_prefill = True",
    "class SparseImpl(Base):\n    supports_dense_mha_prefill = False",
)
UNLISTED = Rule(
    "DRF003",
    "unlisted-backend",
    Severity.WARNING,
    "The engine's registry has a backend that the manifest lacks. A note where its name or class "
    "names another platform than the one that was supposed.",
    "The engine can select it, and the manifest knows nothing of it.",
    "backends: []   # the registry has FLASH_ATTN",
    "backends:\n  - name: FLASH_ATTN",
)
GONE = Rule(
    "DRF004",
    "vanished-backend",
    Severity.ERROR,
    "The manifest has a backend that the engine's registry lacks, or whose class is not there.",
    "Whoever forces or selects it gets an error from the engine.",
    "backends:\n  - name: OLD_ATTN   # no longer in the registry",
    "backends: []",
)
OPEN_ENDED = Rule(
    "DRF005",
    "open-ended-architecture",
    Severity.WARNING,
    "The class, or one of its features or values, refuses older compute capabilities and accepts "
    "every future one; it is asked with one that no GPU has. A note where the manifest says the "
    "same.",
    "A kernel that was built for one generation is selected on the next, where nobody ran it.",
    "return capability >= DeviceCapability(9, 0)",
    "return capability.major in (9, 10)",
)
REFUSED = Rule(
    "DRF006",
    "constructor-refuses",
    Severity.ERROR,
    "The manifest accepts a value that the constructor of the implementation refuses. A note "
    "where only the class claims it and the manifest refuses it too.",
    "The backend is selected and then raises while the model is loaded.",
    'accepts: {kv_cache_dtype: [auto, fp8]}   # __init__ raises for "fp8"',
    "accepts: {kv_cache_dtype: [auto]}",
)
UNDECIDED = Rule(
    "DRF007",
    "not-decided",
    Severity.NOTE,
    "What the code says depends on more than the code, could not be read, or depends in the "
    "manifest on what is not known of the machine. It is neither right nor wrong.",
    "What was not compared must not be taken for compared.",
    "return other_package.version() > 2",
    "return True",
)
INHERITED = Rule(
    "DRF008",
    "inherited-claim",
    Severity.NOTE,
    "A backend's class never states what the manifest and it accept, and has it from an ancestor "
    "that the manifest does not name in `sources:`. A warning where that ancestor is a backend of "
    "the registry and the implementation runs other code than that backend's, or where the work "
    "that the implementation inherits only raises, or reads what no class sets. Nothing is told "
    "of an entry that names `evidence` or `verified_on`.",
    "Nobody decided it for these kernels, and it changes when the ancestor does: a backend for "
    "ROCm took over non-causal attention when its parent learned it, and computed causal "
    "attention (vLLM pull request 40176).",
    "class Other(Parent): ...   # Parent: supports_non_causal = True; Other has its own forward",
    "class Other(Parent):\n    supports_non_causal = False",
)
WIDENED = Rule(
    "DRF009",
    "widened-claim",
    Severity.NOTE,
    "A backend's class accepts what the backend that it extends refuses, and the entry names "
    "neither `evidence` nor `verified_on`. It may be right, and is unverified.",
    "A parent refuses for a reason, which holds as long as its code is run: whether one ROCm "
    "backend may widen another's kinds of attention was disputed until its kernel changed (vLLM "
    "pull request 39128).",
    "class Other(Parent):\n    supports_sink = True   # Parent: False",
    "verified_on: [12.0-2026-11-30-other]",
)
UNREAD = Rule(
    "DRF011",
    "unread-argument",
    Severity.WARNING,
    "The manifest accepts a feature, and the implementation's constructor takes the argument for "
    "it, which no code of its classes reads.",
    "The feature is accepted and left out, and nobody is told: a prefill that took sinks and did "
    "not use them answered every question of a benchmark wrongly (vLLM pull request 52148).",
    "def __init__(self, ..., sinks=None): ...   # and no self.sinks anywhere",
    'if sinks is not None:\n    raise NotImplementedError("no sinks")',
)
LOOSER = Rule(
    "DRF010",
    "looser-constructor",
    Severity.WARNING,
    "The backend's class and the manifest refuse a value on every architecture, and the "
    "constructor of its implementation, which names the values that it takes, takes it.",
    "One of the two is wrong. Whoever makes the implementation without asking the backend gets "
    "wrong results and no error: cross attention through ROCm's AITER implementation (vLLM pull "
    "request 39119).",
    'if attn_type not in ("decoder", "encoder_decoder"): raise ...   # the class: decoder only',
    'if attn_type != "decoder": raise ...',
)

_READING = (
    (
        "DRF101",
        "unreadable-file",
        "A file of the source cannot be read.",
        "What it says is then missing from every comparison.",
        "a wheel whose entry has a wrong checksum",
        "the wheel, downloaded anew",
    ),
    (
        "DRF102",
        "unsafe-name",
        "A name in a wheel leads out of it, is there twice, or is a link that leads out.",
        "Whoever unpacks it writes where nobody expects it; of two files of one name, nobody knows "
        "which one is imported. The file is not read.",
        "engine/../../etc/passwd",
        "engine/attention.py",
    ),
    (
        "DRF103",
        "too-large",
        "A file, or all of them together, is larger than is read.",
        "A small zip can hold more than memory does.",
        "one file of a gigabyte",
        "files of the size that people write",
    ),
    (
        "DRF104",
        "no-python",
        "A module cannot be parsed as Python.",
        "Its classes are then unknown, and whatever inherits from them.",
        "class Backend(:",
        "class Backend:",
    ),
    (
        "DRF105",
        "import-circle",
        "Names import each other in a circle, and none of them is defined.",
        "What such a name is cannot be told; Python itself fails to import it.",
        "from b import X   # and in b: from a import X",
        "class X: ...",
    ),
    (
        "DRF106",
        "inheritance-circle",
        "A class is its own ancestor, or its ancestors have no order.",
        "Which of them supplies an attribute cannot be told; Python refuses the class.",
        "class A(B): ...   # and class B(A): ...",
        "class A: ...",
    ),
    (
        "DRF107",
        "no-registry",
        "The source has no registry of backends where the reader of the engine looks for it.",
        "Nothing can be compared: it may be another engine, or a version that moved it.",
        "a wheel of another package",
        "--engine and --source that belong together",
    ),
)
"""What is told while reading a source: code, name, what, why, an example, and how it should be."""
UNEVEN = Rule(
    "DRF108",
    "uneven-registry",
    Severity.WARNING,
    "The names that the engine's flags take and those that its registry has are not the same, or a "
    "registration is not read. A note where a listed name has nothing registered: the engine may "
    "replace the name before it looks it up.",
    "A name that no flag takes cannot be chosen; one that nothing is registered for may fail when "
    "the engine starts.",
    'CHOICES = ["triton"]   # and @register_attention_backend("flash")',
    'CHOICES = ["triton", "flash"]',
)

RULES = (
    *(
        CLAIM,
        DENSE,
        UNLISTED,
        GONE,
        OPEN_ENDED,
        REFUSED,
        UNDECIDED,
        INHERITED,
        WIDENED,
        LOOSER,
        UNREAD,
    ),
    *(
        Rule(code, name, Severity.ERROR, what, why, bad, good)
        for code, name, what, why, bad, good in _READING
    ),
    *TODOS,
    UNEVEN,
)
