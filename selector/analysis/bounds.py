"""What samples say: how many can still be meant when so few were seen."""

from __future__ import annotations

from math import exp, lgamma, log, log1p

__all__ = ["upper_bound"]


def upper_bound(seen: int, number: int) -> float:
    """The largest share under which so few of so many would be seen in one of twenty draws.

    Source: C. Clopper, E. Pearson, Biometrika 26 (1934): the one-sided bound, 95 %.
    """
    if seen >= number:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        share = (low + high) / 2
        few = sum(
            exp(
                lgamma(number + 1)
                - lgamma(k + 1)
                - lgamma(number - k + 1)
                + k * log(share)
                + (number - k) * log1p(-share)
            )
            for k in range(seen + 1)
        )
        low, high = (share, high) if few > 0.05 else (low, share)
    return high
