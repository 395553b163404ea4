"""What holds for any config: a result or a documented error, soon, whatever it says."""

import json
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import selector.models
from selector.errors import AttnselError
from selector.models import load_model, presets, read_config, shard
from selector.models.tables import tables
from selector.values import Model

ROWS = [
    json.loads(line)["config"]
    for line in (Path(__file__).parent / "data" / "corpus.jsonl").read_text("utf-8").splitlines()
]
PRESETS = {
    name: json.loads(
        (Path(selector.models.__file__).parent / "presets" / f"{name}.json").read_text("utf-8")
    )["config"]
    for name in presets()
}
KEYS = sorted(
    {key for one in tables().spellings.values() for key in one.keys}
    | {rule.key for rule in tables().patterns}
    | {key for config in PRESETS.values() for key in config}
    | {*tables().nesting, *tables().towers, *tables().drafters, *tables().encoders}
    | {"model_type", "is_encoder_decoder", "per_layer_config", "use_sliding_window", "is_causal"}
)
TYPES = sorted({*tables().families, *tables().nested, *tables().default_fields})
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 2, 7, 2**31, 10**30, -(10**30)]),
    st.floats(),
    st.sampled_from(["", "full_attention", "\n", "x" * 200, "0", "FP8", "bfloat16"]),
    st.lists(st.integers(-2, 100), max_size=4),
    st.dictionaries(st.sampled_from(["a", "3", "00", "model_type"]), st.integers(), max_size=2),
)
JSON = st.recursive(
    ODD,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    ),
    max_leaves=20,
)
CONFIGS = st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), JSON, max_size=12)


def read(config: object) -> Model | None:
    """The model, or ``None`` if the config is refused in one line; both within a second of work."""
    start = time.process_time()
    try:
        model = read_config(config)
    except AttnselError as error:
        model, said = None, str(error)
    else:
        said = " ".join(model.notes)
    assert "\n" not in said
    assert len(said) < 4000
    assert time.process_time() - start < 1
    if model is not None:
        assert all(group.count > 0 for group in model.groups)
        assert len({group.name for group in model.groups}) == len(model.groups)
        for group in model.groups:
            assert set(group.origins) == set(group.layer.fields)
            assert set(group.keys) <= set(group.layer.fields)
    return model


@given(JSON)
def test_any_json(config):
    read(config)


@given(CONFIGS, st.sampled_from(TYPES))
def test_any_config_of_a_known_type(config, model_type):
    read({**config, "model_type": model_type})


@given(
    st.sampled_from(sorted(PRESETS)),
    st.lists(st.tuples(st.sampled_from(KEYS), ODD | JSON), min_size=1, max_size=3),
    st.booleans(),
)
@settings(max_examples=200)
def test_presets_with_fields_changed(name, changes, inside):
    config = json.loads(json.dumps(PRESETS[name]))
    level = config.get("text_config", config) if inside else config
    for key, value in changes:
        level[key] = value
    read(config)


@given(st.data())
@settings(max_examples=150)
def test_presets_with_fields_dropped_or_renamed(data):
    config = dict(PRESETS[data.draw(st.sampled_from(sorted(PRESETS)))])
    key = data.draw(st.sampled_from(sorted(config)))
    value = config.pop(key)
    new = data.draw(st.none() | st.sampled_from(KEYS) | st.text(max_size=8))
    if new is not None:
        config[new] = value
    read(config)


def levels(config: dict[str, object]) -> list[dict[str, object]]:
    """The config and every object inside it that holds something."""
    inside = [value for value in config.values() if isinstance(value, dict) and value]
    return [config, *(one for value in inside for one in levels(value))]


@st.composite
def mutated(draw):
    """A row of the corpus with up to three fields dropped, renamed or changed, at any depth."""
    config = json.loads(json.dumps(draw(st.sampled_from(ROWS))))
    for _ in range(draw(st.integers(1, 3))):
        level = draw(st.sampled_from(levels(config)))
        if not level:
            continue
        key = draw(st.sampled_from(sorted(level)))
        value = level[key]
        how = draw(st.sampled_from(["drop", "rename", "change", "grow", "negate", "list", "text"]))
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else 1
        if how in ("drop", "rename"):
            del level[key]
        if how == "rename":
            level[draw(st.sampled_from(KEYS) | st.text(max_size=8))] = value
        changed = {
            "change": lambda: draw(ODD),
            "grow": lambda number=number: number * 10 ** draw(st.integers(2, 60)),
            "negate": lambda number=number: -number,
            "list": lambda value=value: [value] * draw(st.integers(0, 70)),
            "text": lambda value=value: str(value)[:50],
        }
        if how in changed:
            level[key] = changed[how]()
    return config


@given(mutated())
@settings(max_examples=400, deadline=None)
def test_any_mutation_of_a_row(config):
    read(config)


@given(st.sampled_from(sorted(PRESETS)), st.dictionaries(st.text(max_size=5), ODD, max_size=4))
def test_fields_of_no_concern_change_nothing(name, more):
    extra = {f"rope_{key}": value for key, value in more.items()}
    plain = read_config(PRESETS[name], name="x")
    assert read_config({**extra, **PRESETS[name]}, name="x") == plain


@given(st.integers(1, 10_000), st.sampled_from(["gemma2", "gemma3_text", "qwen3_next", "llama"]))
@settings(max_examples=40)
def test_every_layer_is_counted_once(layers, model_type):
    model = read_config({"model_type": model_type, "num_hidden_layers": layers})
    assert sum(group.count for group in model.groups) + model.attention_free == layers


@given(st.sampled_from(sorted(PRESETS)), st.integers(-2, 300) | st.just(10**12))
def test_sharding_answers_or_refuses(name, tp_size):
    model = load_model(name)
    try:
        said = str(shard(model, tp_size).groups[0].layer.get("tp_size"))
    except AttnselError as error:
        said = str(error)
    assert str(tp_size) in said
    assert "\n" not in said
