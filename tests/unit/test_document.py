"""Text becomes a tree with positions, or a finding; whatever the text is, never an exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector.document import LIMITS, Document, Limits, Mapping, Sequence, read_document, read_text
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
