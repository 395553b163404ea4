"""Timings of made-up kernels whose times follow known laws, on shapes of the shipped grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sin

import pytest

from backends.shapes import read_grid
from selector import Selector
from selector.tuning.results import VERSION, Measured, Results, Runner, Shape, Timing
from selector.tuning.timings import Timings
from selector.values import Device, Phase

Law = Callable[[Shape], Mapping[str, float | None]]


def kernels(shape: Shape) -> dict[str, float]:
    """Candidate → microseconds: none is the best everywhere, and one copies the cache."""
    request = shape.request
    query_len, seq_len = request.query_len or 0, request.seq_len or 0
    cached = sum(n * seq for n, _, seq in shape.requests)
    moved = cached * shape.num_kv_heads * shape.head_size * 1e-7
    group = shape.num_heads // shape.num_kv_heads
    copying = {"torch_sdpa_flash": 1.0}
    if shape.phase is Phase.PREFILL:
        work = sum(n * q * s for n, q, s in shape.requests) * shape.num_heads * 1e-6
        short = query_len <= 64 and seq_len - query_len >= 1024
        return {
            "flashinfer_fa2": 10 + 1.6 * work,
            "flashinfer_fa3": (10 + work) * (4 if short else 1),
            **copying,
        }
    return {
        "flashinfer_fa2": 12 + moved,
        "flashinfer_xqa": (12 + moved) * (0.7 if group >= 7 else 1.4),
        **copying,
    }


@pytest.fixture
def make_results() -> Callable[..., Results]:
    """Timings on an H200 by a law, each off by up to two percent."""

    def make(law: Law = kernels, **changes: object) -> Results:
        measured = []
        for index, shape in enumerate(read_grid("h200").shapes()[::4]):
            times = law(shape)
            timings = [
                Timing(
                    candidate=name,
                    median_us=us and us * (1.01 + 0.01 * sin(index * (7 + place))),
                )
                for place, (name, us) in enumerate(times.items())
            ]
            measured.append(Measured(shape, tuple(timings)))
        names = {t.candidate for one in measured for t in one.timings}
        results = Results(
            version=VERSION,
            date="2026-11-01T00:00:00+00:00",
            device=Device("cuda", "9.0", "H200"),
            facts={"flashinfer-python": "0.7.4", "cuda": "13.0", "torch": "2.11.0"},
            manifest=Selector.load().manifest.ref,
            grid="h200",
            seed=0,
            command="attnsel bench --grid h200",
            method="made up",
            runners={name: Runner(not name.startswith("torch")) for name in sorted(names)},
            not_run={},
            defaults={Phase.PREFILL: ("flashinfer_fa3",), Phase.DECODE: ("flashinfer_fa2",)},
            measured=tuple(measured),
        )
        return type(results)(
            **{**{f: getattr(results, f) for f in results.__struct_fields__}, **changes}
        )

    return make


@pytest.fixture
def make_timings(make_results: Callable[..., Results]) -> Callable[..., Timings]:
    """The same as the one file of that name."""

    def make(law: Law = kernels, **changes: object) -> Timings:
        return Timings({"timings-h200": make_results(law, **changes)})

    return make
