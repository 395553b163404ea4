"""Text becomes a tree with positions, or a finding; whatever the text is, never an exception."""

from __future__ import annotations

import pytest

from selector.document import LIMITS, Document, Limits, read_text


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
