"""The rules of drift: what each finding means, and why it matters."""

from __future__ import annotations

from selector.lint.catalogue import Rule
from selector.values import Severity

__all__ = ["CLAIM", "DENSE", "GONE", "OPEN_ENDED", "REFUSED", "RULES", "UNDECIDED", "UNLISTED"]

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
    "The class refuses older compute capabilities and accepts every future one; it is asked with "
    "one that no GPU has. A note where the manifest says the same.",
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

RULES = (CLAIM, DENSE, UNLISTED, GONE, OPEN_ENDED, REFUSED, UNDECIDED)
