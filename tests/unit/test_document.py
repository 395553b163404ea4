"""Text becomes a tree with positions, or a finding; whatever the text is, never an exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector.document import LIMITS, Document, Limits, Mapping, Sequence, read_document, read_text
from selector.loading import read
from selector.values import Position, Severity


def shown(document: Document) -> list[str]:
    """The findings without the file's name."""
    return [str(f).removeprefix("m.yaml:") for f in document.findings]


def value(text: str) -> object:
    """What a plain scalar is read as, when nothing is wrong with it."""
    document = read_text(f"a: {text}\n", "m.yaml")
    assert document.findings == []
    assert document.tree is not None
    return document.tree["a"]


def only(data: bytes | str, limits: Limits = LIMITS) -> str:
    """The one finding of a text."""
    (finding,) = shown(read_text(data, "m.yaml", limits))
    return finding


# -- scalars ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("128", 128),
        ("+128", 128),
        ("-1", -1),
        ("0", 0),
        ("999999999999999999", 999999999999999999),
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("bfloat16", "bfloat16"),
        ("9.x", "9.x"),
        ("8.0..12.1", "8.0..12.1"),
        ("1.2.3", "1.2.3"),
        ("nothing", "nothing"),
        ('"no"', "no"),
        ("'9:0'", "9:0"),
        ('"016"', "016"),
        ('"12.10"', "12.10"),
        ("|-\n  016", "016"),
        ("1٣", "1٣"),
        ("٠١", "٠١"),
    ],
)
def test_scalars_on_which_all_yaml_versions_agree(text: str, read: object) -> None:
    found = value(text)
    assert found == read
    assert type(found) is type(read)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no", 'no is a boolean in YAML 1.1 and text in 1.2; write false or "no"'),
        ("No", 'No is a boolean in YAML 1.1 and text in 1.2; write false or "No"'),
        ("yes", 'yes is a boolean in YAML 1.1 and text in 1.2; write true or "yes"'),
        ("on", 'on is a boolean in YAML 1.1 and text in 1.2; write true or "on"'),
        ("OFF", 'OFF is a boolean in YAML 1.1 and text in 1.2; write false or "OFF"'),
        ("y", 'y is a boolean in YAML 1.1 and text in 1.2; write true or "y"'),
        ("n", 'n is a boolean in YAML 1.1 and text in 1.2; write false or "n"'),
        ("9:0", '9:0 is a base-60 number in YAML 1.1 and text in 1.2; write "9.0" or "9:0"'),
        ("12:00:59", "12:00:59 is a base-60 number in YAML 1.1 and text in 1.2; "),
        ("016", "016 is 14 in YAML 1.1 and 16 in 1.2; drop the zero"),
        ("-016", "-016 is -14 in YAML 1.1 and -16 in 1.2; drop the zero"),
        ("0064", "0064 is 52 in YAML 1.1 and 64 in 1.2; drop the zero"),
        ("008", "008 is text in YAML 1.1 and 8 in 1.2; drop the zero"),
        ("0o20", "0o20 is a number in some YAML versions only; write it in plain decimal"),
        ("0x10", "0x10 is a number in some YAML versions only; write it in plain decimal"),
        ("0b10", "0b10 is a number in some YAML versions only; write it in plain decimal"),
        ("1_000", "1_000 is a number in some YAML versions only; write it in plain decimal"),
        ("12.10", '12.10 is read as the number 12.1; write "12.10"'),
        ("12.0", '12.0 is read as the number 12; write "12.0"'),
        ("-1.5", '-1.5 is read as the number -1.5; write "-1.5"'),
        (".5", '.5 is read as the number 0.5; write ".5"'),
        ("1e3", '1e3 is read as the number 1000; write "1e3"'),
        ("1e999", '1e999 is read as a number; write "1e999"'),
        (".nan", '.nan is read as a number; write ".nan"'),
        ("-.inf", '-.inf is read as a number; write "-.inf"'),
        ("2026-11-29", '2026-11-29 is a date in YAML 1.1 and text in 1.2; write "2026-11-29"'),
        ("1234567890123456789", "1234567890123456789 is too large a number; "),
    ],
)
def test_scalars_on_which_yaml_versions_disagree(text: str, said: str) -> None:
    document = read_text(f"a: {text}\n", "m.yaml")
    (finding,) = shown(document)
    assert finding.startswith(f"1:4: CAP005 {said}")
    assert document.broken


@pytest.mark.parametrize("digits", ["7", "9", "1", "f"])
@pytest.mark.parametrize("lead", ["", "-", "0", "0x", "1.", "1e", "1_", "9:"])
def test_numbers_of_any_length_are_a_short_finding(lead: str, digits: str) -> None:
    document = read_text(f"a: {lead}{digits * 6000}\n", "m.yaml")
    assert document.tree is not None
    for line in shown(document):
        assert len(line) < 250


# -- what is not text ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "1:1: CAP001 file is empty; write a manifest"),
        (b"  \n \n\n", "1:1: CAP001 file is empty; write a manifest"),
        (b"# only a comment\n", "1:1: CAP001 file is empty; write a manifest"),
        (b"---\n", "1:1: CAP001 file is empty; write a manifest"),
        (b"null\n", "1:1: CAP001 file is empty; write a manifest"),
        (b"- a\n", "1:1: CAP004 the document is not a mapping; start with `attnsel: 1`"),
        (b"hello\n", "1:1: CAP004 the document is not a mapping; start with `attnsel: 1`"),
        (b"7\n", "1:1: CAP004 the document is not a mapping; start with `attnsel: 1`"),
        (
            b"\xef\xbb\xbfa: 1\n",
            "1:1: CAP007 file starts with a byte order mark; save it as UTF-8 without BOM",
        ),
        ("a: 1\n".encode("utf-16"), "1:1: CAP007 byte 0xff is not UTF-8; save the file as UTF-8"),
        ("a: 1\n".encode("utf-16-be"), "1:1: CAP007 control character U+0000 is not text; "),
        ("a: 1\n".encode("utf-16-le"), "1:2: CAP007 control character U+0000 is not text; "),
        ("a: 1\nb: é\n".encode("latin-1"), "2:4: CAP007 byte 0xe9 is not UTF-8; "),
        (b"a: \xc0\xaf\n", "1:4: CAP007 byte 0xc0 is not UTF-8; "),
        ("é: é\xe9\ud800".encode("utf-8", "surrogatepass"), "1:6: CAP007 byte 0xed is not UTF-8; "),
        (b"a: 1\nb: \0\n", "2:4: CAP007 control character U+0000 is not text; remove it"),
        (bytes(100), "1:1: CAP007 control character U+0000 is not text; remove it"),
        (b"a: \x1b[31m\n", "1:4: CAP007 control character U+001B is not text; remove it"),
        (b"a: \x7f\n", "1:4: CAP007 control character U+007F is not text; remove it"),
        ("a: \x80\n".encode(), "1:4: CAP007 control character U+0080 is not text; remove it"),
        ("a: \x9f\n".encode(), "1:4: CAP007 control character U+009F is not text; remove it"),
        ("a: \uffff\n".encode(), "1:4: CAP007 control character U+FFFF is not text; remove it"),
        ("a: \ud800", "1:4: CAP007 byte 0xed is not UTF-8; save the file as UTF-8"),
    ],
)
def test_what_is_not_a_manifest_at_all(data: bytes | str, said: str) -> None:
    assert only(data).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:\n\tb: 1\n", "2:1: CAP001 tab used for indentation; indent with spaces"),
        ("a:\n  \tb: 1\n", "2:3: CAP001 tab used for indentation; indent with spaces"),
        ("a:\n  b: 1\n\tc: 2\n", "3:1: CAP001 tab used for indentation; indent with spaces"),
        ("a:\n  - b\n  -\tc\n", "3:4: CAP001 tab used for indentation; indent with spaces"),
        ("a: 1\nb:2\nc: 3\n", "2:1: CAP001 key without a colon and a space; write `key: value`"),
        ("a: 1\nb:2", "2:1: CAP001 key without a colon and a space; write `key: value`"),
        ("a: 1\nb\n", "2:1: CAP001 key without a colon and a space; write `key: value`"),
        ("a: {b:1}\n", '1:5: CAP001 key "b:1" has no value; put a space after the colon'),
        ("a: [1, 2\n", "2:1: CAP001 did not find expected ',' or ']'; correct the YAML here"),
        ("a: {stable: [}\n", "1:14: CAP001 did not find expected node content; "),
        ("a: b: c\n", "1:5: CAP001 mapping values are not allowed in this context; "),
        ("a: @b\n", "1:4: CAP001 found character that cannot start any token; "),
        ('a: "\\q"\n', "1:5: CAP001 found unknown escape character; "),
        ("a: *b\n", "1:4: CAP001 no anchor &b before this alias; define it above"),
        ("a: !!binary aGk=\n", "1:4: CAP001 tag !!binary is not read; remove the tag"),
        ("a: !mine {}\n", "1:4: CAP001 tag !mine is not read; remove the tag"),
        (
            "a: !!python/name:os.system x\n",
            "1:4: CAP001 tag !!python/name:os.system is not read; remove the tag",
        ),
        ("a: 1\n---\nb: 2\n", "2:1: CAP001 a second document starts here; keep one in a file"),
        ("a: 1\n...\n---\n", "3:1: CAP001 a second document starts here; keep one in a file"),
        ("a: 1\na: 2\n", '2:1: CAP002 key "a" is already given on line 1; keep one'),
        ("a: {b: 1, b: 1}\n", '1:11: CAP002 key "b" is already given on line 1; keep one'),
        ('8: 1\n"8": 2\n', '2:1: CAP002 key "8" is already given on line 1; keep one'),
        ("? {a: 1}\n: 1\n", "1:3: CAP004 key a collection is not text; quote it"),
        ("?\n: 1\n", "1:2: CAP004 key null is not text; quote it"),
        ("true: 1\n", "1:1: CAP004 key true is not text; quote it"),
        ("a: &x [1]\nb: {<<: *x}\n", "1:4: CAP004 << merges only mappings; name an anchor"),
        ("a: &x\n  b: *x\n", "2:6: CAP006 *x contains itself; spell it out"),
    ],
)
def test_what_yaml_reads_otherwise_or_not_at_all(text: str, said: str) -> None:
    assert only(text).startswith(said)


# -- hostile text -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: " + "x" * (5 << 20), "1:1: CAP006 file is larger than 4,194,304 bytes; split it"),
        ("[" * 100_000, "1:1001: CAP006 exceeded maximum nesting depth; "),
        ("{a: " * 100_000, "1:161: CAP006 nested deeper than 40 levels; flatten it"),
        ("- " * 100_000, "1:81: CAP006 nested deeper than 40 levels; flatten it"),
        (
            "".join(" " * i + "a:\n" for i in range(500)),
            "41:41: CAP006 nested deeper than 40 levels; flatten it",
        ),
        ("a: [" + "1," * 200_000 + "]", "1:399999: CAP006 more than 200,000 nodes; split the file"),
        (
            "a: &a {" + ", ".join(f"k{i}: 1" for i in range(1000)) + "}\n"
            "b: {<<: [" + ", ".join(["*a"] * 900) + "]}\n",
            "2:1598: CAP006 aliases expand to more than 400,000 nodes; repeat less",
        ),
        (
            "a0: &a0 {x: 1}\n"
            + "".join(f"a{i}: &a{i} {{<<: *a{i - 1}, k{i}: 1}}\n" for i in range(1, 5000)),
            "630:18: CAP006 aliases expand to more than 400,000 nodes; repeat less",
        ),
    ],
    ids=["size", "flow", "maps", "list", "block", "nodes", "merges", "chain"],
)
def test_hostile_text_ends_in_one_finding_and_no_tree(text: str, said: str) -> None:
    document = read_text(text, "m.yaml")
    (finding,) = shown(document)
    assert finding.startswith(said)
    assert document.tree is None


def test_limits_are_the_last_thing_that_still_passes() -> None:
    limits = Limits(size_bytes=22, depth=3, nodes=8, expanded_nodes=9)
    assert read_text("a: [[1]]\nb: 123456789\n", "m.yaml", limits).findings == []
    assert "larger than 22 bytes" in only("a: [[1]]\nb: 1234567890\n", limits)
    assert "nested deeper than 3 levels" in only("a: [[[1]]]", limits)
    assert read_text("a: [1,2,3,4,5]", "m.yaml", limits).findings == []
    assert "more than 8 nodes" in only("a: [1,2,3,4,5,6]", limits)
    assert read_text("a: &x [1]\nb: *x", "m.yaml", limits).findings == []
    assert "aliases expand to more than 9" in only("a: &x [1]\nb: [*x, *x]", limits)


def test_findings_are_bounded_and_the_cut_is_said() -> None:
    document = read_text("a:\n" + "- no\n" * 5000, "m.yaml")
    assert len(document.findings) == LIMITS.findings + 1
    assert {f.code for f in document.findings[:-1]} == {"CAP005"}
    last = document.findings[-1]
    assert (last.severity, last.code, last.line) == (Severity.NOTE, "CAP006", 202)
    assert last.message == "only the first 200 findings are shown"


def test_the_schema_is_not_asked_for_more_findings_than_are_shown() -> None:
    text = 'attnsel: 1\nname: x\nversion: "1"\nbackends:\n' + "- 1\n" * 20_000
    manifest, document = read(read_text(text, "m.yaml"))
    assert manifest is None
    assert len(document.findings) == LIMITS.findings + 1


def test_a_file_is_read_no_further_than_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "big.yaml"
    file.write_bytes(b"#" * (LIMITS.size_bytes + 1))
    assert read_document(file).findings[0].message == "file is larger than 4,194,304 bytes"
    with pytest.raises(IsADirectoryError):
        read_document(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_document(tmp_path / "none.yaml")


# -- positions ----------------------------------------------------------------------------------


def at(line: int, column: int) -> Position:
    return Position("m.yaml", line, column)


def test_every_key_value_and_item_knows_where_it_stands() -> None:
    text = 'one:\r\n  two: [3, "é", {four: x}]\nfive: >-\n  text\n# ü\n"six": &a {}\nseven: *a\n'
    tree = read_text(text, "m.yaml").tree
    assert isinstance(tree, Mapping)
    assert tree.position == at(1, 1)
    assert tree.keys_at == {
        "one": at(1, 1),
        "five": at(3, 1),
        "six": at(6, 1),
        "seven": at(7, 1),
    }
    inner = tree["one"]
    assert (inner.position, inner.keys_at["two"]) == (at(2, 3), at(2, 3))
    items = inner["two"]
    assert isinstance(items, Sequence)
    assert items.items_at == [at(2, 9), at(2, 12), at(2, 17)]
    assert items[2].keys_at["four"] == at(2, 18)
    assert items[2].values_at["four"] == at(2, 24)
    assert tree.values_at["five"] == at(3, 7)
    assert tree.values_at["seven"] == tree["seven"].position == at(6, 8)  # the anchor belongs to it


def test_merge_keys_say_nothing_twice_and_remember_where_it_was_said() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  z: 3\n  <<: [*a, *b]\n"
    tree = read_text(text, "m.yaml").tree
    assert tree is not None
    assert tree["c"] == {"x": 1, "y": 1, "z": 3}
    assert tree["c"].keys_at == {"z": at(4, 3), "x": at(1, 8), "y": at(1, 14)}
    assert tree["a"] == {"x": 1, "y": 1}


def test_anchors_may_be_given_again() -> None:
    tree = read_text("a: &x 1\nb: *x\nc: &x 2\nd: *x\n", "m.yaml").tree
    assert tree == {"a": 1, "b": 1, "c": 2, "d": 2}


def test_a_directive_changes_nothing_and_is_noted() -> None:
    document = read_text("%YAML 1.1\n---\na: b\n", "m.yaml")
    (finding,) = document.findings
    assert (finding.code, finding.severity, finding.line) == ("CAP005", Severity.NOTE, 1)
    assert not document.broken
    assert document.tree == {"a": "b"}


def test_one_mistake_is_reported_once() -> None:
    document = Document("m.yaml")
    for message in ("one", "one", "two"):
        document.report("CAP004", at(1, 1), message)
    document.report("CAP004", Position("other.yaml", 1, 1), "one")
    assert [(f.file, f.message) for f in document.findings] == [
        ("m.yaml", "one"),
        ("m.yaml", "two"),
        ("other.yaml", "one"),
    ]
