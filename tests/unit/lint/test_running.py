"""Which files are looked at, which rules, and in what order findings come."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from selector.document import read_text
from selector.errors import UnknownRuleError
from selector.lint import Selection, lint, rules
from selector.lint.catalogue import codes, find_rule, selected
from selector.lint.files import files_of
from selector.lint.many import check_bytes, check_files
from selector.values import Finding, Severity

ROOT = Path(__file__).parents[3]
GOOD = (ROOT / "tests/manifests/good/smallest.yaml").read_text("utf-8")
WRONG = f"{GOOD}nom: x\n"
OVERLAY = "attnsel: 1\noverlay: ours\ndeny: [{backend: paged, reason: Not here.}]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "b.yaml": GOOD,
        "a/z.yml": GOOD,
        "a/deeper/y.yaml": GOOD,
        "a/README.md": GOOD,
        "a/compose.yaml": "services: {}\n",
        "a/ours.yaml": OVERLAY,
        ".hidden/h.yaml": GOOD,
        "odd[1].yaml": GOOD,
        "json.yaml": '{"attnsel": 1}',
        "quoted.yaml": '"attnsel" : 1',
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return tmp_path


def names(*references: str) -> list[str]:
    return [str(path) for path in files_of(references)[0]]


# -- files ---------------------------------------------------------------------------------------


def test_a_folder_stands_for_the_manifests_and_overlays_below_it(folder: Path) -> None:
    assert names("a") == ["a/deeper/y.yaml", "a/ours.yaml", "a/z.yml"]
    found = [*names("a"), "b.yaml", "json.yaml", "odd[1].yaml", "quoted.yaml"]
    assert names(".") == found
    assert names(str(folder)) == [str(folder / name) for name in found]


def test_patterns_stand_for_what_matches(folder: Path) -> None:
    assert names("*.yaml") == ["b.yaml", "json.yaml", "odd[1].yaml", "quoted.yaml"]
    assert names("a/**/*.yml", "?.yaml") == ["a/z.yml", "b.yaml"]
    assert names("**/y.yaml") == ["a/deeper/y.yaml"]
    assert names("odd[1].yaml") == ["odd[1].yaml"]  # a file is called so
    assert names("[ab].yaml") == ["b.yaml"]


def test_what_means_no_file_is_told(folder: Path) -> None:
    (folder / "empty").mkdir()
    assert files_of(["x*.yaml", "empty", "b.yaml"]) == ([Path("b.yaml")], ["empty", "x*.yaml"])
    assert files_of([]) == ([], [])
    assert files_of([""]) == ([], [""])


def test_each_file_comes_once_in_the_same_order(folder: Path) -> None:
    os.symlink("b.yaml", folder / "link.yaml")
    wanted = ["a/deeper/y.yaml", "a/ours.yaml", "a/z.yml", "b.yaml"]
    for given in (("a", "b.yaml"), ("b.yaml", "a"), ("./b.yaml", "a/", "a/z.yml", "link.yaml")):
        assert names(*given) == wanted


def test_shipped_manifests_go_by_name_and_missing_files_are_kept(folder: Path) -> None:
    assert names("vllm-0.33.0") == [str(ROOT / "manifests/vllm-0.33.0.yaml")]
    assert names("missing.yaml") == ["missing.yaml"]


def test_nothing_waits_for_a_pipe_in_a_folder(folder: Path) -> None:
    os.mkfifo(folder / "pipe.yaml")
    assert "pipe.yaml" not in names(".")


# -- rules ---------------------------------------------------------------------------------------


def test_codes_are_selected_by_what_they_begin_with() -> None:
    assert selected(["CAP9"]) == {"CAP901", "CAP902"}
    assert selected(["cap901", "CAP90"]) == {"CAP901", "CAP902"}
    assert selected([]) == frozenset()
    assert selected(["CAP"]) == frozenset(codes())


@pytest.mark.parametrize(
    ("said", "meant"), [("CAP991", "CAP901"), ("CPA902", "CAP902"), ("", None), ("ruff", None)]
)
def test_an_unknown_code_is_told_with_the_nearest(said: str, meant: str | None) -> None:
    with pytest.raises(UnknownRuleError) as raised:
        selected([said])
    assert str(raised.value).startswith(f'no rule has a code that begins with "{said}"')
    assert (f"did you mean {meant}?" in str(raised.value)) == (meant is not None)


def test_every_rule_is_found_under_its_code_and_named_as_its_module() -> None:
    assert [rule.code for rule in rules()] == [*codes()] == sorted(codes())
    for code, module in codes().items():
        rule = find_rule(code.lower())
        assert module == f"{code.lower()}_{rule.name.replace('-', '_')}"


def test_rules_that_are_not_selected_are_not_asked() -> None:
    marked = GOOD + "# attnsel: ignore\n"
    document = read_text(marked, "a.yaml")
    assert [f.code for f in lint(document)] == ["CAP902"]
    for chosen in (Selection(ignore=selected(["CAP9"])), Selection(select=selected(["CAP1"]))):
        assert lint(document, (), chosen) == []


def test_errors_of_reading_are_told_whatever_is_selected() -> None:
    document = read_text(WRONG, "a.yaml")
    for chosen in (Selection(select=selected(["CAP9"])), Selection(ignore=selected(["CAP0"]))):
        assert [f.code for f in lint(document, (), chosen)] == ["CAP003"]
    noted = read_text(f"%YAML 1.1\n---\n{GOOD}", "a.yaml")
    assert [f.code for f in lint(noted)] == ["CAP005"]
    assert lint(noted, (), Selection(ignore=selected(["CAP005"]))) == []


def test_a_clean_run_reads_no_documentation_of_reading_errors() -> None:
    script = (
        "import sys\n"
        "from selector.document import read_text\n"
        "from selector.lint import lint\n"
        f"assert lint(read_text({GOOD!r}, 'a.yaml')) == []\n"
        "print([name for name in sys.modules if 'lint.rules.cap0' in name or 'torch' in name])\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


# -- findings ------------------------------------------------------------------------------------


def test_an_overlay_alone_is_checked_for_its_own_form() -> None:
    assert lint(read_text(OVERLAY, "o.yaml")) == []
    odd = OVERLAY.replace("deny", "dney")
    assert [(f.code, f.line) for f in lint(read_text(odd, "o.yaml"))] == [("CAP003", 3)]
    marked = OVERLAY + "# attnsel: ignore[CAP102] for the manifest\n# attnsel: ignore\n"
    assert [(f.code, f.line) for f in lint(read_text(marked, "o.yaml"))] == [("CAP902", 5)]


def test_findings_without_a_place_stand_at_the_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from selector.lint import running

    lost = Finding("", 0, 0, "CAP901", Severity.WARNING, "somewhere")
    monkeypatch.setattr(running, "_manifest_findings", lambda *_: ([lost], True))
    [found] = lint(read_text(GOOD, "a.yaml"))
    assert (found.file, found.line, found.column) == ("a.yaml", 1, 1)


def test_a_finding_is_told_once_and_findings_are_in_order() -> None:
    text = WRONG.replace("mla: false", "mla: no").replace('version: "1"', "version: 1")
    found = lint(read_text(text, "a.yaml"))
    assert found == sorted(set(found))
    assert [f.code for f in found] == ["CAP004", "CAP005", "CAP003"]


# -- many files ----------------------------------------------------------------------------------


def test_what_cannot_be_read_is_told_and_the_rest_is_checked(folder: Path) -> None:
    (folder / "wrong.yaml").write_text(WRONG, "utf-8")
    files = [Path("missing.yaml"), Path("wrong.yaml"), Path("b.yaml")]
    missing, wrong, good = check_files(files, [], Selection())
    assert missing.trouble == "missing.yaml: no such file or directory"
    assert ([f.code for f in wrong.findings], wrong.texts) == (["CAP003"], {"wrong.yaml": WRONG})
    assert (good.file, good.findings, good.texts) == ("b.yaml", (), {})
    [without] = check_files([Path("b.yaml")], ["none.yaml"], Selection())
    assert without.trouble == "none.yaml: no such file or directory"


def test_findings_that_can_be_mended_are_known() -> None:
    text = WRONG.replace("mla: false", "mla: no")
    one = check_bytes(text.encode(), "a.yaml", [], Selection())
    assert [f.code for f in one.findings] == ["CAP005", "CAP003"]
    assert [f.code for f in one.fixable] == ["CAP005"]


def test_many_files_are_checked_alike_by_one_core_and_by_several(folder: Path) -> None:
    for number in range(40):
        text = WRONG if number % 3 == 0 else GOOD
        (folder / f"many{number:02}.yaml").write_text(text, "utf-8")
    (folder / "many40.yaml").mkdir()
    script = """
import os, sys
if sys.argv[1] == "one":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from cli.main import main
code = main(["lint", *sys.argv[2:], "--format", "json"])
print(code, "concurrent.futures.process" in sys.modules)
"""
    files = sorted(str(path) for path in folder.glob("many*.yaml"))
    outputs = {}
    for cores, given in (("one", files), ("all", files), ("all", files[::-1])):
        ran = subprocess.run(
            [sys.executable, "-c", script, cores, *given], capture_output=True, text=True
        )
        assert ran.stderr == "attnsel: many40.yaml: no manifest is there\n"
        found, _, said = ran.stdout.rstrip().rpartition("\n")
        outputs[cores, given[0]] = found
        spread = cores == "all" and len(os.sched_getaffinity(0)) > 1
        assert said == f"2 {spread}"
    assert len(set(outputs.values())) == 1
    assert outputs["one", files[0]].count("CAP003") == 14
