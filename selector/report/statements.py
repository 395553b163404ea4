"""Rules in words: what a manifest states, as it is read back to a person."""

from __future__ import annotations

from selector.fields import Vocabulary, show_domain
from selector.rules import Allowed, Bound, Constraint, Steps, Test, When

__all__ = ["allowed_words", "constraint_words", "steps_words", "test_words", "when_words"]


def allowed_words(name: str, allowed: Allowed, words: Vocabulary) -> str:
    """``64, 128``, ``up to index_topk``, ``any``."""
    parts = [_bound_words(bound) for bound in allowed.bounds]
    if not allowed.fixed.is_empty() or not parts:
        parts.append(show_domain(words.fields[name], allowed.fixed))
    return ", ".join(parts)


def _bound_words(bound: Bound) -> str:
    parts = [f"multiples of {bound.multiple_of}"] if bound.multiple_of > 1 else []
    if bound.low is not None and bound.low == bound.high:
        return " ".join([*parts, f"equal to {bound.low}"])
    if bound.low is not None:
        parts.append(f"from {bound.low}")
    if bound.high is not None:
        parts.append(f"up to {bound.high}")
    return " ".join(parts)


def test_words(test: Test, words: Vocabulary) -> str:
    """``head_size 64, 128``."""
    return f"{test.field} {allowed_words(test.field, test.allowed, words)}"


def when_words(when: When, words: Vocabulary) -> str:
    """``capability 9.x and head_size up to 256``; nothing when it always holds."""
    return " and ".join(test_words(test, words) for test in when.tests)


def constraint_words(constraint: Constraint, words: Vocabulary) -> str:
    """``when sink true: head_size 64, 128``; ``never sink true and dtype float16``."""
    when = when_words(constraint.when, words)
    required = [when_words(constraint.require, words)] if constraint.require.tests else []
    if constraint.any_of:
        required.append(" or ".join(when_words(w, words) for w in constraint.any_of))
    if not required:
        return f"never {when}"
    lead = f"when {when}: " if when else ""
    return f"{lead}{' and '.join(required)}"


def steps_words(steps: Steps) -> str:
    """``query_len at least 512 where seq_len is up to 2,048, …``."""
    rows = [f"{low:,} where {steps.over} is up to {high:,}" for high, low in steps.table]
    return f"{steps.least} at least {', '.join(rows)}"
