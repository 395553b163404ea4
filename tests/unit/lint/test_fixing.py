"""Safe fixes: what is mended, that nothing else changes, and that nothing reads worse."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from selector.document import read_text
from selector.lint import Selection, fixing, lint
from selector.lint.catalogue import Edit, find_rule
from selector.lint.fixes import say_plainly
from selector.lint.fixing import mend
from selector.lint.page import Page
from selector.values import Finding

ROOT = Path(__file__).parents[3]
MANIFESTS = ROOT / "tests" / "manifests"
MANIFEST = """\
attnsel: 1
name: example  # a comment
version: "1.0"
backends:
  - name: paged
    source: https://example.org/paged
    mla: false
    sparse: false
    accepts:
      platform: [cuda]
      capability: ["9.0", "12.0"]
      dtype: [bfloat16]
      kv_cache_dtype: [auto]
      head_size: [64, 128]
      block_size: any
      attn_type: [decoder]
      sink: [true, false]
    phases: {prefill: {}, decode: {}}
    decode_threshold: 1
    prefill_paths: [{path: mha, reason: The only way.}]
priorities:
  - order: [paged]
    reason: There is only one.
"""


def mended(text: str | bytes, *overlays: str, keep: bool = False) -> str:
    data = text.encode() if isinstance(text, str) else text
    others = [(f"overlay{n}.yaml", one.encode()) for n, one in enumerate(overlays)]
    kept = frozenset(name for name, _ in others) if keep else frozenset()
    return mend([("a.yaml", data), *others], keep=kept).data["a.yaml"].decode()


def codes(data: bytes) -> Counter[str]:
    return Counter(f.code for f in lint(read_text(data, "a.yaml")))


def test_what_is_right_stays() -> None:
    assert mended(MANIFEST) == MANIFEST


@pytest.mark.parametrize(
    ("right", "wrong", "wanted"),
    [
        ("mla: false\n", "mla: no\n", "mla: false\n"),
        ("mla: false\n", "mla: Off  # a comment\n", "mla: false  # a comment\n"),
        ("sink: [true, false]", "sink: [yes, n]", "sink: [true, false]"),
        ("[true, false]", "[ ON,   no  ]  # both", "[ true,   false  ]  # both"),
        ("decode: {}", "decode: {disabled: no}", "decode: {disabled: false}"),
    ],
)
def test_boolean_words_become_booleans(right: str, wrong: str, wanted: str) -> None:
    assert mended(MANIFEST.replace(right, wrong)) == MANIFEST.replace(right, wanted)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"1.0"', "1.0"),
        ('"1.0"', "2.10  # the second"),
        ('"1.0"', "2026-11-30"),
        ('"1.0"', "7"),
        ('["9.0", "12.0"]', '[9.0, "12.0"]'),
        ('["9.0", "12.0"]', "[9.0,12.0]"),
    ],
)
def test_versions_and_capabilities_are_quoted(right: str, wrong: str) -> None:
    text = MANIFEST.replace(right, wrong)
    after = mended(text)
    assert after != text
    assert after.replace('"', "") == text.replace('"', "")
    assert lint(read_text(after, "a.yaml")) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("head_size: [64, 128]", "head_size: [64.0, 128]"),  # a number is wanted
        ("head_size: [64, 128]", "head_size: [064, 128]"),  # 52 or 64
        ('["9.0", "12.0"]', '[9:0, "12.0"]'),  # 540 or a capability
        ("name: example", "name: no"),  # text, or a boolean that has no place here
        ("mla: false", "mla: 0"),
        ("mla: false", "on: false"),  # a key
        ('"1.0"', "1e3"),
    ],
)
def test_what_could_mean_more_stays(right: str, wrong: str) -> None:
    text = MANIFEST.replace(right, wrong)
    assert lint(read_text(text, "a.yaml")) != []
    assert mended(text) == text


@pytest.mark.parametrize(
    ("wrong", "wanted"),
    [
        ("order: [paged, paged]", "order: [paged]"),
        ("order: [paged , paged ]", "order: [paged  ]"),
        ('order: [paged, "paged", paged]', "order: [paged]"),
        ("order:\n      - paged\n      - paged", "order:\n      - paged"),
        ("order:\n      - paged\n      - paged  # again", None),
        ("order: [paged,\n      paged]", None),
    ],
)
def test_a_name_listed_twice_is_listed_once(wrong: str, wanted: str | None) -> None:
    text = MANIFEST.replace("order: [paged]", wrong)
    assert mended(text) == MANIFEST.replace("order: [paged]", wanted or wrong)


@pytest.mark.parametrize(
    ("wrong", "wanted"),
    [
        ("name: paged  # attnsel: ignore[CAP102] why\n", "name: paged\n"),
        ("name: paged  # one # attnsel: ignore[CAP102] why\n", "name: paged  # one\n"),
        ("name: paged\n# attnsel: ignore[CAP102] why\n", "name: paged\n"),
        ("name: paged # attnsel: ignore[CAP102,  CAP103] why\n", "name: paged\n"),
        ("name: paged # attnsel: ignore[CAP102] # and words\n", "name: paged\n"),
    ],
)
def test_comments_that_do_nothing_are_removed(wrong: str, wanted: str) -> None:
    assert mended(MANIFEST.replace("name: paged\n", wrong)) == MANIFEST.replace(
        "name: paged\n", wanted
    )


def test_of_a_comment_only_what_does_nothing_is_removed() -> None:
    text = f"%YAML 1.1 # attnsel: ignore[CAP005, CAP102] old\n---\n{MANIFEST}"
    assert mended(text) == text.replace("CAP005, CAP102", "CAP005")
    text = f"%YAML 1.1 # attnsel: ignore[CAP102, CAP005] old\n---\n{MANIFEST}"
    assert mended(text) == text.replace("CAP102, CAP005", "CAP005")


def test_a_directive_that_changes_nothing_and_a_byte_order_mark_are_removed() -> None:
    assert mended(f"%YAML 1.1\n---\n{MANIFEST}") == f"---\n{MANIFEST}"
    marked = b"\xef\xbb\xbf" + MANIFEST.encode()
    assert mended(marked) == MANIFEST
    both = b"\xef\xbb\xbf" + MANIFEST.replace("attnsel: 1", "mla: no").encode()
    assert mended(both).startswith("mla: ")
    first = (
        b"\xef\xbb\xbf"
        + MANIFEST.replace(
            'attnsel: 1\nname: example  # a comment\nversion: "1.0"',
            "version: 1.0\nattnsel: 1\nname: example  # a comment",
        ).encode()
    )
    assert mended(first).startswith('version: "1.0"\nattnsel: 1\n')


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
def test_everything_else_stays_byte_for_byte(end: str) -> None:
    text = f"# 漢字 😀\t\n{MANIFEST}\n# the end, without a break".replace("\n", end)
    wrong = text.replace("mla: false", "mla: no").replace('"1.0"', "1.0")
    assert mended(wrong) == text


def test_only_the_chosen_rules_mend() -> None:
    text = MANIFEST.replace("mla: false", "mla: no  # attnsel: ignore[CAP102] why")
    chosen = Selection(select=frozenset({"CAP901"}))
    assert mend([("a.yaml", text.encode())], chosen).data["a.yaml"].decode() == text
    once = MANIFEST.replace("order: [paged]", "order: [paged, paged]")
    only = Selection(ignore=frozenset({"CAP015"}))
    assert mend([("a.yaml", once.encode())], only).data["a.yaml"].decode() == once


def test_overlays_are_mended_unless_others_need_them() -> None:
    overlay = "attnsel: 1\noverlay: ours  # attnsel: ignore[CAP102] why\n"
    sources = [("a.yaml", MANIFEST.encode()), ("o.yaml", overlay.encode())]
    after = mend(sources)
    assert after.data["o.yaml"].decode() == "attnsel: 1\noverlay: ours\n"
    assert (after.fixed, after.findings) == (1, ())
    kept = mend(sources, keep=frozenset({"o.yaml"}))
    assert kept.data["o.yaml"].decode() == overlay
    assert [f.code for f in kept.findings] == ["CAP901"]


def test_a_word_is_only_a_boolean_where_the_language_wants_one() -> None:
    text = MANIFEST.replace("name: example", "name: no").replace("mla: false", "mla: no")
    document = read_text(text, "a.yaml")
    page = Page(document)
    edits = [say_plainly(f, page) for f in document.findings if f.code == "CAP005"]
    assert [[edit.text for edit in some] for some in edits] == [[], ["false"]]


def test_what_would_read_worse_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_it(finding: Finding, page: Page) -> list[Edit]:
        return [Edit(finding.line, finding.column, finding.column, "[")]

    worse = structs.replace(find_rule("CAP901"), fix=break_it)
    monkeypatch.setattr(
        fixing, "find_rule", lambda code: worse if code == "CAP901" else find_rule(code)
    )
    text = MANIFEST.replace("name: paged", "name: paged  # attnsel: ignore[CAP102] why")
    text = text.replace("source: https", "source: [https")
    assert mended(text) == text
    for wrong, right in (("order: [paged, paged]", "order: [paged]"), ("mla: no", "mla: false")):
        marked = MANIFEST.replace("attnsel: 1", "attnsel: 1  # attnsel: ignore[CAP102] why")
        both = marked.replace(right, wrong)
        assert both != marked
        assert mended(both) == marked  # the other one is


def test_what_makes_nothing_better_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def turn(finding: Finding, page: Page) -> list[Edit]:
        line = page.line(finding)
        word = "CAP103" if "CAP102" in line else "CAP102"
        return [Edit(finding.line, finding.column, finding.column + 6, word)]

    turning = structs.replace(find_rule("CAP901"), fix=turn)
    monkeypatch.setattr(fixing, "find_rule", lambda _: turning)
    text = MANIFEST.replace("name: paged", "name: paged  # attnsel: ignore[CAP102] why")
    assert mended(text) == text


ALL = sorted([*(MANIFESTS / "bad").glob("*.yaml"), *(MANIFESTS / "good").glob("*.yaml")])


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_whatever_is_mended_reads_better_and_a_second_time_changes_nothing(path: Path) -> None:
    data = path.read_bytes()
    before = lint(read_text(data, "a.yaml"))
    after = mend([("a.yaml", data)])
    assert list(after.findings) == lint(read_text(after.data["a.yaml"], "a.yaml"))
    if after.data["a.yaml"] == data:
        assert after.fixed == 0
    else:
        read_before, read_after = (
            read_text(one, "a.yaml").tree is not None for one in (data, after.data["a.yaml"])
        )
        assert read_after >= read_before
        assert after.fixed > 0
        assert {f.code for f in before} - {f.code for f in after.findings} or after.fixed
    assert mend([("a.yaml", after.data["a.yaml"])]).data["a.yaml"] == after.data["a.yaml"]


LINES = MANIFEST.splitlines(keepends=True)
WORDS = (
    "no",
    "yes",
    "1.0",
    "9.0",
    "paged, paged",
    "[",
    "}",
    "#",
    "\ufeff",
    "\t",
    "'",
    '"',
    "&a",
    "*a",
)


@given(
    st.lists(
        st.tuples(st.integers(0, len(LINES) - 1), st.sampled_from(WORDS), st.integers(0, 40)),
        min_size=1,
        max_size=4,
    )
)
def test_no_change_makes_it_read_worse(changes: list[tuple[int, str, int]]) -> None:
    lines = [*LINES]
    for number, word, at in changes:
        lines[number] = lines[number][:at] + word + lines[number][at:]
    data = "".join(lines).encode()
    before, after = read_text(data, "a.yaml"), mend([("a.yaml", data)])
    assert (after.documents[0].tree is None) <= (before.tree is None)
    assert mend([("a.yaml", after.data["a.yaml"])]).fixed == 0
