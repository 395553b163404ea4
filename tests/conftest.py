"""What all tests share: how hard the laws are tried."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "quick",
    deadline=None,
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "deep",
    settings.get_profile("quick"),
    derandomize=False,
    max_examples=2000,
)
settings.load_profile("quick")
