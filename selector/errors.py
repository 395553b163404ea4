"""Errors of a call. Problems in a document are findings instead (:mod:`selector.values`).

Every error is one line: where, what was seen, what is allowed, what to do. ``code`` is stable.
"""

from __future__ import annotations

__all__ = [
    "AttnselError",
    "ContradictionError",
    "ManifestError",
    "TooManyTermsError",
    "UnknownBackendError",
    "UnknownDeviceError",
    "UnknownFieldError",
    "UnknownManifestError",
    "UnknownModelError",
    "UnknownRuleError",
    "ValueRefusedError",
    "os_words",
]


class AttnselError(Exception):
    """Base of all errors that attnsel raises on purpose; ``code`` is stable across versions."""

    code = "ATTNSEL"


class ManifestError(AttnselError, ValueError):
    """A manifest has findings of severity error; ``findings`` lists them all."""

    code = "MANIFEST"

    def __init__(self, findings: tuple[object, ...]) -> None:
        self.findings = findings
        count = len(findings)
        more = f" (and {count - 1} more)" if count > 1 else ""
        super().__init__(f"{findings[0]}{more}")


class UnknownManifestError(AttnselError, FileNotFoundError):
    """A manifest is neither a file nor the name of one that ships."""

    code = "UNKNOWN_MANIFEST"


class UnknownRuleError(AttnselError, LookupError):
    """No rule of lint has this code."""

    code = "UNKNOWN_RULE"


class UnknownFieldError(AttnselError, LookupError):
    """A field name is in no vocabulary."""

    code = "UNKNOWN_FIELD"


class ValueRefusedError(AttnselError, ValueError):
    """A value does not have the field's type or is not in its vocabulary."""

    code = "VALUE"


class ContradictionError(AttnselError, ValueError):
    """Two values cannot both hold: no such request exists."""

    code = "CONTRADICTION"


class UnknownDeviceError(AttnselError, LookupError):
    """An architecture or product name is not known."""

    code = "UNKNOWN_DEVICE"


class UnknownBackendError(AttnselError, LookupError):
    """A backend name is not in the manifest."""

    code = "UNKNOWN_BACKEND"


class TooManyTermsError(AttnselError, OverflowError):
    """A rule has too many combinations for an exact analysis; resolving it is no trouble."""

    code = "TOO_MANY_TERMS"


class UnknownModelError(AttnselError, ValueError):
    """A model preset or ``config.json`` cannot be read as attention layers."""

    code = "UNKNOWN_MODEL"


def os_words(error: OSError) -> str:
    """What the system refused, on one line: the file, if it is one, and why."""
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    return f"{error.filename}: {reason}" if error.filename else reason
