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
        ("yES", None),
        ("tRUE", None),
        ("nULL", None),
        ("9:0", '9:0 is the base-60 number 540 in YAML 1.1 and text in 1.2; write "9.0" or "9:0"'),
        ("12:00:59", "12:00:59 is the base-60 number 43259 in YAML 1.1 and text in 1.2; "),
        ("-1:30", "-1:30 is the base-60 number -90 in YAML 1.1 and text in 1.2; "),
        ("9:30.5", "9:30.5 is the base-60 number 570.5 in YAML 1.1 and text in 1.2; "),
        ("03:30", "03:30 is a base-60 number in some YAML versions only; "),
        ("12:60", None),
        ("016", "016 is 14 in YAML 1.1 and 16 in 1.2; drop the zero"),
        ("-016", "-016 is -14 in YAML 1.1 and -16 in 1.2; drop the zero"),
        ("0064", "0064 is 52 in YAML 1.1 and 64 in 1.2; drop the zero"),
        ("008", "008 is text in YAML 1.1 and 8 in 1.2; drop the zero"),
        ("0o20", "0o20 is a number in some YAML versions only; write it in plain decimal"),
        ("0x10", "0x10 is a number in some YAML versions only; write it in plain decimal"),
        ("0b10", "0b10 is a number in some YAML versions only; write it in plain decimal"),
        ("0XFF", "0XFF is a number in some YAML versions only; write it in plain decimal"),
        ("1_000", "1_000 is a number in some YAML versions only; write it in plain decimal"),
        ("1_000.5", '1_000.5 is read as the number 1000.5; write "1_000.5"'),
        ("=", '= is a special value in YAML 1.1 and text in 1.2; write "="'),
        ("<<", '<< is a special value in YAML 1.1 and text in 1.2; write "<<"'),
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
def test_scalars_on_which_yaml_versions_disagree(text: str, said: str | None) -> None:
    if said is None:  # text in every version
        assert value(text) == text
        return
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
        ("a: 1\n".encode("utf-16"), "1:1: CAP007 file is UTF-16; save it as UTF-8"),
        (b"\xfe\xff" + "a: 1\n".encode("utf-16-be"), "1:1: CAP007 file is UTF-16; "),
        ("a: größe 日本\n".encode("utf-16-be"), "1:1: CAP007 file is UTF-16; save it as UTF-8"),
        ("a: größe 日本\n".encode("utf-16-le"), "1:1: CAP007 file is UTF-16; save it as UTF-8"),
        ("a: 1\n".encode("utf-32"), "1:1: CAP007 file is UTF-32; save it as UTF-8"),
        (b"a: 1\n\xef\xbb\xbfb: 2\n", "2:1: CAP007 byte order mark inside the text; remove it"),
        (b"a: 1\r\nb: 2\rc: 3\r\n", "2:5: CAP007 U+000D ends a line for some YAML versions and "),
        (
            "a: 1\x85b: 2\n",
            "1:5: CAP007 U+0085 ends a line for some YAML versions and ",
        ),
        ("a: 1\u2028b: 2\n", "1:5: CAP007 U+2028 ends a line for some YAML versions and tools "),
        ("a: 1 # \u202e\n", "1:8: CAP007 control character U+202E is not text; remove it"),
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
        ("a:1\n", "1:1: CAP001 key without a colon and a space; write `key: value`"),
        ("a:\n  b:1\n  c: 2\n", "2:3: CAP001 key without a colon and a space; write "),
        ("a:\n  - b:1\n    # x\n    c: 2\n", "2:5: CAP001 key without a colon and a space; "),
        ('a:"x"\nb: 1\n', "1:1: CAP001 key without a colon and a space; write `key: value`"),
        ("a: {b:[1], c: 2}\n", "1:6: CAP001 colon without a space; put a space after the colon"),
        ("a:\n  - b\n  -c\n", "3:3: CAP001 dash without a space; write `- item`"),
        ("a:\n\xa0\xa0b: 1\nc: d e\n", "2:1: CAP007 U+00A0 looks like a space and is none; "),
        ("a: 1\nb:\xa02\n", "2:3: CAP007 U+00A0 looks like a space and is none; write a space"),
        ("a: x\u200b\n", "1:4: CAP007 U+200B looks like a space and is none; remove it"),
        ("a: {b:1}\n", '1:5: CAP001 key "b:1" has no value; put a space after the colon'),
        ("a: [1, 2\n", "1:4: CAP001 [ is not closed; close it with ]"),
        ("a: [1, 2\nb: 3\n", "1:4: CAP001 [ is not closed; close it with ]"),
        ("a:\n  b: {c: 1\n  d: 3\n", "2:6: CAP001 { is not closed; close it with }"),
        ("a: {b: 1\n  c: 2}\n", "2:4: CAP001 `,` or `}` is missing before this; the { is on "),
        ("a: {stable: [}\n", "1:14: CAP001 a value is missing before this; write one"),
        ('a: "b\nc: 1\nd: 2\n', '1:4: CAP001 quote " is not closed; close it'),
        ("a: 1\nb: 'c\nd: 2\n", "2:4: CAP001 quote ' is not closed; close it"),
        ('a: "b\nc: "d"\n', '1:4: CAP001 quote " is not closed before line 2; close it'),
        ("a: 'b\nc:\n  d: ['e']\n", "1:4: CAP001 quote ' is not closed before line 3; close it"),
        ("a: b: c\n", "1:5: CAP001 second colon on one line; quote the value, or "),
        ("a: b\n  c: d\n", "2:3: CAP001 this is indented below a value that is text; indent "),
        ("a:\n   b: 1\n  c: 2\n", "3:3: CAP001 this is not indented as the keys above; "),
        ("a:\n  - b\n  c: 2\n", "3:3: CAP001 this is not indented as the items above; "),
        ('a: "b" c\n', "1:8: CAP001 text behind a value; quote the whole value"),
        ("a: - b\n", "1:4: CAP001 a list cannot begin behind a key; begin it on the next line"),
        ("a: @b\n", "1:4: CAP001 @ cannot begin a value; quote the value"),
        ("a: *.yaml\n", "1:5: CAP001 `*` and `&` begin names of anchors; quote the value"),
        ('a: "\\q"\n', "1:5: CAP001 unknown escape character; write the backslash twice"),
        ("%YAML 3.0\n---\na: 1\n", "1:1: CAP001 this version of YAML is not read; "),
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
        ('1: a\n"1": b\n', '2:1: CAP002 key "1" is already given on line 1; keep one'),
        (
            "1: a\n+1: b\n",
            "2:1: CAP002 keys 1 (line 1) and +1 can both be read as the number 1, so one is lost; "
            'write "1" and "+1"',
        ),
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


# -- keys that become one, and what aliases repeat -----------------------------------------------


@pytest.mark.parametrize(
    ("one", "two", "both"),
    [
        ("12.10", "12.1", "the number 12.1"),
        ("yes", "true", "true"),
        ("true", "True", "true"),
        ("off", "no", "false"),
        ("null", "~", "null"),
        ("0x10", "16", "the number 16"),
        ("010", "8", "the number 8"),
        ("010", "10", "the number 10"),
        ("9:0", "540", "the number 540"),
        ("1_0", "10", "the number 10"),
        ("1e1", "10.0", "the number 10"),
    ],
)
def test_keys_that_some_yaml_version_takes_for_one(one: str, two: str, both: str) -> None:
    first, second = read_text(f"a:\n  {one}: u\n  {two}: v\n", "m.yaml").findings
    assert (first.line, first.column) == (2, 3)
    assert first.code in ("CAP004", "CAP005")
    assert (second.line, second.column, second.code) == (3, 3, "CAP002")
    assert second.message == (
        f"keys {one} (line 2) and {two} can both be read as {both}, so one is lost"
    )
    assert second.fix == f'write "{one}" and "{two}"'


@pytest.mark.parametrize("key", ["12.0", "yes", "016", "9:0", "2026-11-29"])
def test_a_plain_key_and_the_same_in_quotes_are_one(key: str) -> None:
    first, second = read_text(f'a:\n  {key}: u\n  "{key}": v\n', "m.yaml").findings
    assert (first.code, first.fix) == ("CAP005", f'write "{key}"')
    assert str(second) == f'm.yaml:3:3: CAP002 key "{key}" is already given on line 2; keep one'


def test_the_same_keys_of_different_mappings_are_two() -> None:
    document = read_text('a: {8: u, "12.1": {8: v}}\nb: {"8": w}\n', "m.yaml")
    assert document.findings == []


def test_quoted_merge_keys_are_text() -> None:
    assert read_text('a: {"<<": {b: 1}}\n', "m.yaml").tree == {"a": {"<<": {"b": 1}}}


def test_lines_that_end_with_carriage_returns_are_read_with_their_places() -> None:
    document = read_text("a: 1\rb: 2\r\rc: no\r", "m.yaml")
    assert shown(document) == [
        "1:5: CAP007 lines end with carriage returns only, which few tools take for line ends; "
        "save it with line feeds",
        '4:4: CAP005 no is a boolean in YAML 1.1 and text in 1.2; write false or "no"',
    ]
    assert document.findings[0].severity is Severity.WARNING
    assert document.text.split("\n")[3] == "c: no"


@pytest.mark.parametrize("at", range(8))
def test_a_tab_in_any_indentation_is_named_where_it_stands(at: int) -> None:
    lines = ["a:", "  b:", "    c: 1", "    d: [1, 2]", "  e:", "    - f: g", "      h: x", "i: 2"]
    for column in range(len(lines[at]) - len(lines[at].lstrip()) + 1):
        tabbed = [*lines]
        tabbed[at] = f"{lines[at][:column]}\t{lines[at][column:]}"
        finding = only("\n".join(tabbed) + "\n")
        place = f"{at + 1}:{column + 1}"
        assert finding == f"{place}: CAP001 tab used for indentation; indent with spaces"


def settled(text: str, *places: int) -> list[str]:
    """The findings of a text, and one mistake more at each use of a value on these lines."""
    document = read_text(text, "m.yaml")
    assert document.tree is not None
    for key, place in document.tree.values_at.items():
        if place.line in places:
            document.report("CAP004", place, f"{document.tree[key]} is wrong")
    return shown(document.settled())


def test_a_mistake_in_what_aliases_repeat_is_told_once_with_its_uses() -> None:
    text = "a: &x\n  b: no\nc: *x\nd: {<<: *x}\n"
    seen = "2:6: CAP005 no is a boolean in YAML 1.1 and text in 1.2"
    said = f'{seen} (&x, used on {{}}); write false or "no"'
    assert settled(text) == [said.format("lines 3 and 4")]
    assert settled("a: &x\n  b: no\nc: *x\n") == [said.format("line 3")]
    assert settled("a: &x\n  b: no\nc: *x\nd: [*x, *x]\ne: *x\nf: *x\ng: *x\n") == [
        said.format("lines 3, 4 and 3 more")
    ]
    assert "&" not in settled("a: &x\n  b: no\n")[0]
    assert "&" not in settled("a: &x {b: 1}\nc: no\nd: *x\n")[0]


def test_the_inmost_anchor_is_named() -> None:
    (said,) = settled("a: &x {b: &y [no]}\nc: *x\nd: *y\n")
    assert said.startswith("1:15: CAP005 no is a boolean in YAML 1.1 and text in 1.2 (&y, used on ")


def test_a_scalar_that_is_wrong_wherever_it_is_repeated_is_wrong_at_its_anchor() -> None:
    text = "a: &x maybe\nb: *x\nc: *x\nd: 1\n"
    assert settled(text, 2, 3) == ["1:4: CAP004 maybe is wrong (&x, used on lines 2 and 3)"]
    assert settled(text, 3) == ["3:4: CAP004 maybe is wrong (&x of line 1)"]
    assert settled(text, 1, 4) == [
        "1:4: CAP004 maybe is wrong (&x, used on lines 2 and 3)",
        "4:4: CAP004 1 is wrong",
    ]


def test_settling_twice_says_the_same() -> None:
    document = read_text("a: &x\n  b: no\nc: *x\n", "m.yaml")
    once = shown(document.settled())
    assert shown(document.settled()) == once
    assert shown(document) != once
