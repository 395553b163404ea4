"""Writes the vocabulary's fields into the schemas: run after changing ``selector/fields.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from selector.fields import BUILTIN, Field

SCHEMAS = Path(__file__).parent.parent / "schemas"
REQUEST_FIELDS = ("query_len", "seq_len", "context_len", "has_context", "num_prefills")
DEVICE_FIELDS = ("platform", "capability")


def value_schema(field: Field) -> dict[str, Any]:
    """The JSON form of a field's value."""
    kinds = {
        "integer": {"type": "integer", "minimum": field.low},
        "boolean": {"type": "boolean"},
        "presence": {"type": ["boolean", "number"]},
        "name": {"type": "string", **({"enum": list(field.values)} if field.values else {})},
        "capability": {"type": "string"},
    }
    schema = dict(kinds[field.type])
    if field.symbols:
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], *field.symbols]
        else:
            schema = {"anyOf": [schema, {"enum": list(field.symbols)}]}
    return {"description": field.description, **schema}


def write(name: str, change: Any) -> None:
    """Rewrites one schema in place."""
    path = SCHEMAS / name
    schema = json.loads(path.read_text())
    change(schema)
    path.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")


def put_manifest(schema: dict[str, Any]) -> None:
    """Field names and descriptions, for completion and hover in an editor."""
    definitions = schema["$defs"]
    for holder, kind in (("when", "predicate"), ("require", "predicate"), ("accepts", "accept")):
        kept = {k: v for k, v in definitions[holder]["properties"].items() if k == "any_of"}
        fields = {
            f.name: {"description": f.description, "$ref": f"#/$defs/{kind}"} for f in BUILTIN
        }
        definitions[holder]["properties"] = {**fields, **kept}


def put_layer(schema: dict[str, Any]) -> None:
    """Every field of a layer."""
    skipped = (*REQUEST_FIELDS, *DEVICE_FIELDS)
    schema["properties"] = {f.name: value_schema(f) for f in BUILTIN if f.name not in skipped}


def put_model(schema: dict[str, Any]) -> None:
    """The layer, so that the schema of a model stands alone."""
    layer = json.loads((SCHEMAS / "layer.schema.json").read_text())
    schema["$defs"]["layer"] = {k: v for k, v in layer.items() if k not in ("$schema", "$id")}


def put_answer(schema: dict[str, Any]) -> None:
    """What an answer is made of, so that the schemas of other answers stand alone."""
    answer = json.loads((SCHEMAS / "resolution.schema.json").read_text())["$defs"]
    parts = {**answer, **{n: answer["resolution"]["properties"][n] for n in ("device", "manifest")}}
    definitions = schema["$defs"]
    definitions |= {name: parts[name] for name in definitions if name in parts}


def put_overlay(schema: dict[str, Any]) -> None:
    """The manifest's own forms; the changes of an entry need only its name."""
    manifest = json.loads((SCHEMAS / "manifest.schema.json").read_text())
    definitions = manifest["$defs"]
    entry = {k: v for k, v in definitions.pop("entry").items() if k not in ("required", "allOf")}
    change = {"description": "One entry's changes.", **entry, "required": ["name"]}
    schema["$defs"] = {**definitions, "change": change}
    properties = schema["properties"]
    for key in ("facts", "priorities", "deny"):
        about = properties[key]["description"]
        properties[key] = {**manifest["properties"][key], "description": about}
    properties["backends"]["items"] = {
        "description": "One entry's changes.",
        "$ref": "#/$defs/change",
    }


if __name__ == "__main__":
    write("manifest.schema.json", put_manifest)
    write("layer.schema.json", put_layer)
    write("model.schema.json", put_model)
    write("overlay.schema.json", put_overlay)
    for name in ("explanation", "inspection", "machine", "timings", "tuning"):
        write(f"{name}.schema.json", put_answer)
