"""The data files hold together."""

import json
from pathlib import Path

import pytest

import selector.models
from selector.models import presets
from selector.models.patterns import _RULES
from selector.models.tables import tables

HERE = Path(selector.models.__file__).parent
KINDS = {"full", "sliding", "chunked", "cross", "none", "skip"}


def test_no_key_is_written_twice():
    for file in sorted(HERE.rglob("*.json")):
        json.loads(file.read_text("utf-8"), object_pairs_hook=once(file.name))


def once(name):
    def build(pairs):
        keys = [key for key, _ in pairs]
        assert len(keys) == len(set(keys)), (name, sorted(k for k in keys if keys.count(k) > 1))
        return dict(pairs)

    return build


def test_families_lead_somewhere_and_say_their_source():
    known = tables()
    for model_type, raw in known.families.items():
        assert ("like" in raw) != ("source" in raw), model_type
        assert raw.get("like", model_type) in known.families
        assert raw.get("defaults", "llama") in known.default_fields
        family = known.family(model_type)
        assert family.attention in ("decoder", "encoder", "none")
        assert set(family.spellings or {}) <= set(known.spellings)
        for keys in (family.kinds or {}).values():
            assert set(keys) <= set(known.spellings)
        assert set(family.kinds or {}) <= KINDS


def test_a_family_spells_its_rules_right():
    allowed = set(tables().family("llama")._fields) | {"like", "defaults"}
    for model_type, raw in tables().families.items():
        assert set(raw) <= allowed, model_type


def test_patterns_name_rules_and_kinds():
    for rule in tables().patterns:
        assert rule.rule in _RULES
        assert {rule.at, rule.other, *rule.letters.values()} - {""} <= KINDS


def test_every_rule_is_in_the_documentation_with_models_that_need_it():
    page = (Path(__file__).parents[3] / "docs" / "models.md").read_text("utf-8")
    rows = [
        row for row in page.split("\n## Rules\n")[1].split("\n## ")[0].splitlines() if "|" in row
    ]
    assert all(cell.strip() for row in rows for cell in row.strip("|").split("|"))
    for name in _RULES:
        assert any(row.startswith(f"| layer pattern: `{name}` |") for row in rows), name


def test_layer_types_of_classes_have_a_meaning():
    known = tables()
    for model_type in known.default_layers:
        cycle = known.cycle(model_type)
        assert all(word in known.words for word in (*cycle.words, cycle.last) if word), model_type


def test_roles_are_quantities():
    for keys in tables().roles.values():
        assert set(keys) <= set(tables().spellings)


def test_nested_configs_are_of_a_type_the_tables_know():
    known = tables()
    for outer, inside in known.nested.items():
        for key, inner in inside.items():
            if key in known.nesting:
                assert known.knows(inner) or inner in known.nested, (outer, key)


def test_encoders_are_types_the_table_knows():
    assert tables().encoder_types <= set(tables().default_fields)


def test_presets_are_many():
    assert len(presets()) >= 40


@pytest.mark.parametrize("name", presets())
def test_presets_hold_a_page_and_attention_fields_only(name):
    stored = json.loads((HERE / "presets" / f"{name}.json").read_text("utf-8"))
    assert set(stored) == {"source", "config"}
    assert "vocab_size" not in stored["config"]
    assert name == name.lower()
