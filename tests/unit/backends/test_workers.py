"""Kernels that crash, hang, refuse late or are wrong: each costs its own case, and no other."""

import importlib.util
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from backends import bench
from backends.cases import Case
from backends.certify import Limits, Runs, certify
from backends.contract import Batch
from backends.judging import CaseResult, Judgement
from backends.keeper import Keeper
from backends.shapes import Grid
from backends.workers import Job, Run, Workers, WorkersError
from selector import Selector
from selector.manifest import Manifest
from selector.tuning.results import Shape
from selector.values import Device, Facts, Phase, Position

pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("crashing.py")
CPU = Device("cpu")
MANIFEST = """\
attnsel: 1
name: example
version: "1"
backends:
  - name: crashing
    source: example
    mla: false
    sparse: false
    accepts:
      platform: [cpu]
      capability: absent
      head_size: any
      dtype: any
      kv_cache_dtype: any
      block_size: any
      attn_type: any
    phases: {prefill: {}}
    prefill_paths: [{path: mha, reason: The only way.}]
priorities:
  - {order: [crashing], reason: There is only one.}
"""


@pytest.fixture(scope="module")
def does() -> ModuleType:
    """The adapters, in this process, and the names of what they do."""
    spec = importlib.util.spec_from_file_location("backends.crashing", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def manifest(does: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    monkeypatch.setitem(sys.modules, "backends.crashing", does)
    return Selector.loads(MANIFEST).manifest


def case(page_size: int, accepts: bool = True, seq_len: int = 2) -> Case:
    batch = Batch(
        query_lens=(2,),
        seq_lens=(seq_len,),
        num_heads=1,
        num_kv_heads=1,
        head_size=8,
        v_head_size=8,
        page_size=page_size,
        dtype="float32",
    )
    text = str(page_size)
    at = Position("m.yaml", page_size, 1)
    return Case("crashing", Phase.PREFILL, "block_size", text, at, accepts, batch)


def workers(count: int = 1, device: str = "cpu") -> Workers:
    return Workers(device, count, (sys.executable, str(SCRIPT)))


def run(manifest: Manifest, cases: tuple[Case, ...], adapter: str = "plain", **options: object):  # type: ignore[no-untyped-def]
    runs = Runs({f"backends.crashing:{adapter}": cases}, (), {})
    options = {"workers": workers(), **options}
    return certify(manifest, CPU, Facts(), date="2026-11-20", runs=runs, **options)  # type: ignore[arg-type]


def test_each_crash_costs_its_own_case(manifest: Manifest, does: ModuleType) -> None:
    order = (does.ABORT, does.EXIT, does.HANG, does.WRONG, does.LATE, does.FAULT, does.RIGHT)
    heard: list[CaseResult] = []
    certificate = run(
        manifest,
        tuple(case(page_size) for page_size in order),
        workers=workers(2),
        limits=Limits(case_s=0.5),
        on_result=heard.append,
    )
    told = {r.case.batch.page_size: (r.judgement, r.message) for r in certificate.results}
    assert told[does.ABORT] == (
        Judgement.FAULT,
        "its process was ended by SIGABRT: CUDA error: an illegal memory access",
    )
    assert told[does.EXIT] == (Judgement.FAULT, "its process exited with code 3")
    assert told[does.HANG] == (Judgement.FAULT, "took longer than 0.5 s")
    assert told[does.FAULT] == (Judgement.FAULT, "ValueError: what")
    assert told[does.LATE] == (Judgement.OVER_CLAIM, "crashing: no")
    assert told[does.WRONG][0] is Judgement.WRONG_RESULT
    assert told[does.RIGHT][0] is Judgement.CONFIRMED
    assert [r.case.batch.page_size for r in certificate.results] == list(order)
    assert len(heard) == len(order)
    assert not certificate.passed
    codes = [finding.code for finding in certificate.findings()]
    assert codes == ["CERT002", "CERT007", "CERT007", "CERT007", "CERT007", "CERT003"]


def test_what_the_manifest_keeps_off_is_told_and_no_failure(
    manifest: Manifest, does: ModuleType
) -> None:
    cases = tuple(case(n, accepts=False) for n in (does.ABORT, does.WRONG, does.LATE))
    certificate = run(manifest, cases)
    assert [r.judgement for r in certificate.results] == [
        Judgement.KEPT_OFF,
        Judgement.SILENTLY_WRONG,
        Judgement.CONFIRMED,
    ]
    assert certificate.passed
    assert [finding.code for finding in certificate.findings()] == ["CERT001", "CERT008"]


def test_a_worker_whose_device_is_spoilt_takes_no_other_case(
    manifest: Manifest, does: ModuleType
) -> None:
    certificate = run(manifest, (case(does.SPOILS), case(does.RIGHT)))
    assert [r.judgement for r in certificate.results] == [Judgement.CONFIRMED] * 2


def test_when_time_is_up_the_rest_is_untested_and_a_second_run_goes_on(
    manifest: Manifest, does: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, hangs, last = case(does.RIGHT), case(does.HANG), case(does.RIGHT, seq_len=5)
    now = time.monotonic
    over = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now() + over[0])

    def hear(_: CaseResult) -> None:
        over[0] = 10_000.0  # the clock jumps once the first case is done

    cut = run(manifest, (first, hangs, last), limits=Limits(total_s=5_000), on_result=hear)
    assert [r.case for r in cut.results] == [first]
    why = "no time left"
    assert {(u.claim.line, u.why) for u in cut.untested} == {(does.HANG, why), (does.RIGHT, why)}
    monkeypatch.setattr(time, "monotonic", now)
    heard: list[CaseResult] = []
    whole = run(
        manifest,
        (first, last),
        done=cut.results,
        on_result=heard.append,
    )
    assert [r.case for r in heard] == [last]
    assert [r.case for r in whole.results] == [first, last]
    assert whole.untested == ()


def test_a_kernel_that_does_not_compile_is_asked_once(manifest: Manifest, does: ModuleType) -> None:
    cases = (
        case(does.UNCOMPILABLE, seq_len=5),
        case(does.UNCOMPILABLE, seq_len=6),
        case(does.LOST_BUILD),
        case(does.RIGHT),
    )
    said: list[str] = []
    certificate = run(manifest, cases, "compiled", on_note=said.append)
    assert [(r.judgement, r.message) for r in certificate.results[:2]] == [
        (Judgement.OVER_CLAIM, "crashing: does not compile")
    ] * 2
    assert [r.judgement for r in certificate.results[2:]] == [Judgement.CONFIRMED] * 2
    assert said[0].startswith("building 3 kernels, ")
    assert said[1].startswith(
        "building for backends.crashing:compiled: its process was ended by SIGABRT"
    )


def test_what_cannot_be_built_is_not_timed(
    manifest: Manifest, does: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "Workers", lambda device: workers(device=device))
    pages = (does.UNCOMPILABLE, does.LOST_BUILD, does.RIGHT)
    shapes = [
        Shape(
            phase=Phase.PREFILL,
            requests=((1, 2, 2),),
            num_heads=1,
            num_kv_heads=1,
            head_size=8,
            page_size=page_size,
            dtype="float32",
        )
        for page_size in pages
    ]
    entry = msgspec.structs.replace(
        manifest.entry("crashing"), adapter="backends.crashing:compiled"
    )
    stated = msgspec.structs.replace(manifest, entries={"crashing": entry})
    found = bench.find_candidates(stated, CPU, Facts(), shapes)
    keeper = Keeper(tmp_path / "t.json")
    grid = Grid(grid="pages", description="", groups=())
    said: list[str] = []
    results = bench.measure(
        stated, CPU, Facts(), grid, found, keeper, date="2026-11-20", on_note=said.append
    )
    refused = [one.timings[0].refused for one in results.measured]
    assert refused[0] == "its kernel is not built: crashing: does not compile"
    assert refused[1].startswith("its kernel is not built: its process was ended by SIGABRT")
    assert refused[2] == ""
    assert said[0].startswith("building 3 kernels, ")
    nothing = bench.find_candidates(stated, CPU, Facts(), shapes, missing=("nvcc",))
    assert nothing.not_run == {
        "crashing": "no nvcc here, and its kernels are compiled on first use"
    }


def test_what_is_not_built_in_time_is_no_hanging_kernel(
    manifest: Manifest, does: ModuleType
) -> None:
    cut = run(manifest, (case(does.HANG),), "compiled", limits=Limits(build_s=0))
    assert cut.results == ()
    assert [(u.claim.line, u.why) for u in cut.untested] == [(does.HANG, "no time left")]


def test_what_is_claimed_is_built_and_run_before_what_is_not(
    manifest: Manifest, does: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = [case(does.RIGHT, accepts=False, seq_len=n) for n in (2, 4, 5)]
    claimed = [case(does.LATE), case(does.WRONG, seq_len=2), case(does.WRONG, seq_len=4)]
    order: list[str] = []

    def answer(self: Workers, jobs: Iterable[Job], *_: object) -> list[Job]:
        for job in jobs:
            batch = job.case.batch if isinstance(job, Run) else job.batches[0]
            order.append(f"{type(job).__name__} {batch.page_size}")
        return []

    monkeypatch.setattr(Workers, "answer", answer)
    run(manifest, (*refused, *claimed), "compiled")
    late, wrong, right = does.LATE, does.WRONG, does.RIGHT
    assert order == [
        *(f"Build {wrong}", f"Build {late}", f"Run {late}", f"Run {wrong}", f"Run {wrong}"),
        *(f"Build {right}", f"Run {right}", f"Run {right}", f"Run {right}"),
    ]


def test_a_worker_that_cannot_start_is_no_verdict(manifest: Manifest, does: ModuleType) -> None:
    with pytest.raises(WorkersError, match=r"exited with code 1: no such device$"):
        run(manifest, (case(does.RIGHT),), workers=workers(device="nowhere"))


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_a_hanging_kernel_ends_with_who_started_it(does: ModuleType) -> None:
    mine, its = socket.socketpair()
    number = its.fileno()
    words = [sys.executable, str(SCRIPT), str(number), "cpu"]
    start = f"import subprocess; subprocess.run({words!r}, pass_fds=[{number}])"
    with its:
        starter = subprocess.Popen([sys.executable, "-c", start], pass_fds=[number])
    with Connection(mine.detach()) as line:
        line.recv_bytes()  # it is ready
        job = Run("backends.crashing:plain", case(does.HANG), "cpu", 0)
        line.send_bytes(msgspec.json.encode(job))
        assert not line.poll(0.2)
        starter.kill()
        starter.wait()
        assert line.poll(20)
        with pytest.raises((EOFError, ConnectionResetError)):
            line.recv_bytes()
