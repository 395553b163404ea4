"""How often entries are judged for one answer: bounds on work, which no other load moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from selector import judge as judging
from selector.changes.case import Case, Inquiry
from selector.changes.search import elsewhere, ways, within_reach
from selector.devices import find_device, find_gpu, known_capabilities
from selector.models import load_model
from selector.serving.commands import read_command, split_line
from selector.serving.diagnosis.answer import diagnose
from selector.serving.logs.log import read_log
from selector.serving.preflight import mending
from selector.serving.preflight.answer import Engine, Preflight, preflight

LOG = Path(__file__).parents[1] / "serving" / "logs" / "sparse_mla_tp8.log"
FP8 = "vllm serve gpt-oss-20b -tp 2 --kv-cache-dtype fp8_e4m3"
TWO = "vllm serve llama-3.1-8b --attention-backend FLASH_ATTN --kv-cache-dtype fp8"


@cache
def engine() -> Engine:
    return Engine.load("vllm-0.33.0")


def ahead(gpu: str, line: str) -> Preflight:
    variables, argv = split_line(line)
    command = read_command(argv, variables)
    return preflight(command, load_model(str(command.model)), find_gpu(gpu), engine())


def case_of(found: Preflight) -> Case:
    inquiry = found.parts[0].inquiry
    assert inquiry is not None
    return Case(inquiry, inquiry.resolve(engine().truth))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The entries that are judged, each as often as it is."""
    seen: list[str] = []
    listen: Callable[..., Any] = judging._listen

    def counted(manifest: Any, entry: Any, *rest: Any) -> Any:
        seen.append(entry.name)
        return listen(manifest, entry, *rest)

    monkeypatch.setattr(judging, "_listen", counted)
    return seen


def everyone() -> int:
    return len(engine().truth.manifest.entries)


def test_a_command_that_starts_asks_those_only_that_a_list_names(judged: list[str]) -> None:
    assert ahead("H200", "vllm serve llama-3.1-8b").will_start
    assert len(judged) < everyone()  # claims, truth and software, all three


@pytest.mark.parametrize(("gpu", "line", "most"), [("A100", FP8, 4), ("T4", TWO, 10)])
def test_a_mend_judges_few(judged: list[str], gpu: str, line: str, most: int) -> None:
    assert ahead(gpu, line).mended
    assert len(judged) < most * everyone()


def test_more_changes_are_looked_for_only_when_fewer_do_not_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Case] = []
    answers = iter([False, True])  # the first single change does not do, the second does

    def counted(case: Case, selector: Any) -> Any:
        asked.append(case)
        return ways(case, selector)

    monkeypatch.setattr(mending, "ways", counted)
    monkeypatch.setattr(mending, "starts", lambda *_: next(answers))
    found = ahead("A100", FP8)
    assert found.mended is not None
    assert len(found.mended.amendments) == 1
    assert len(asked) == 1


def test_elsewhere_asks_those_only_that_a_list_names(judged: list[str]) -> None:
    case = case_of(ahead("A100", FP8))
    judged.clear()
    found = elsewhere(case, engine().truth)
    archs = len(known_capabilities()) + 1
    assert len(judged) < archs * everyone() / 2
    judged.clear()
    assert elsewhere(case, engine().truth, found[:1]) == found[:1]
    assert len(judged) < everyone() / 2


def test_elsewhere_is_where_the_whole_answer_has_backends() -> None:
    case = case_of(ahead("A100", FP8))
    found = elsewhere(case, engine().truth)
    assert found == tuple(
        arch
        for arch in (*known_capabilities(), "cpu")
        if not at(case.inquiry, arch).resolve(engine().truth).missing
    )


def at(inquiry: Inquiry, arch: str) -> Inquiry:
    from msgspec.structs import replace

    return replace(inquiry, device=find_device(arch))


def test_a_search_begins_with_what_was_answered(judged: list[str]) -> None:
    case = case_of(ahead("RTX PRO 6000", "vllm serve deepseek-v3.2 -tp 8"))
    judged.clear()
    found = ways(case, engine().truth)
    assert len(found) > everyone() / 2
    assert len(judged) < everyone() / 2  # all of them once were that many


@pytest.mark.parametrize(("gpu", "line"), [("A100", FP8), ("T4", TWO), ("B200", FP8)])
def test_who_is_out_of_reach_has_no_way(gpu: str, line: str) -> None:
    case = case_of(ahead(gpu, line))
    near = within_reach(case, engine().truth)
    assert 0 < len(near.resolution.candidates) < everyone()

    def changes(found: Sequence[Any]) -> list[Any]:
        return [(way.prospect.backend, way.prospect.changes) for way in found]

    possible = [w for w in ways(case, engine().truth) if w.prospect.changes]
    assert changes([w for w in ways(near, engine().truth) if w.prospect.changes]) == changes(
        possible
    )


def test_an_error_of_a_log_judges_few(judged: list[str]) -> None:
    selector = engine().truth
    log = read_log(LOG.read_text("utf-8"), selector.manifest.vocabulary)
    diagnose(log.errors[0], log, selector, find_device("12.0"))
    assert len(judged) < 10 * everyone()
