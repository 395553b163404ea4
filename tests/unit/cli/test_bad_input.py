"""Whatever is wrong, it is said in one line, and the exit code tells whose fault it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import GQA, SPARSE, Run

PLAIN = ("resolve", "--arch", "12.0", "--set", GQA)
BARE = ("resolve", "--arch", "12.0", "--set")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("resolve", "--arch", "hopper", "--set", GQA), 'unknown architecture or GPU "hopper"'),
        (("resolve", "--gpu", "B2000", "--set", GQA), "did you mean B200 (10.0)?"),
        (("resolve", "--gpu", "", "--set", GQA), "unknown GPU"),
        (("resolve", "--arch", "12.0", "--gpu", "H200"), "--arch and --gpu"),
        ((*BARE, "hed_size=128"), 'unknown field "hed_size"; did you mean head_size?'),
        ((*BARE, "head_size=many"), "head_size many is not a whole number"),
        ((*BARE, "head_size=-1"), "head_size -1 is not a whole number of at least 1"),
        ((*BARE, "dtype=bfloat17"), "did you mean bfloat16?"),
        ((*BARE, "sink=maybe"), "sink maybe is not true or false"),
        ((*BARE, "sink"), '--set "sink" is not field=value'),
        ((*BARE, "=3"), '--set "=3" is not field=value'),
        ((*BARE, "head_size=64,head_size=128"), "head_size is set twice, with different values"),
        ((*BARE, "query_len=3"), "say --query-len 3"),
        ((*BARE, "capability=9.0"), "say --arch 9.0"),
        ((*BARE, "flashinfer-python=new"), 'flashinfer-python "new" is not a version'),
        ((*BARE, "jit=perhaps"), 'jit "perhaps" is not true, false or none'),
        ((*BARE, "a\x1b[31m\nb=c"), "unknown field"),
        ((*PLAIN, "--backend", "fa4"), 'no backend is called "fa4"; did you mean fa2?'),
        (
            (*PLAIN, "--backend", "QUITE_ELSE"),
            'no backend is called "QUITE_ELSE"; `attnsel inspect` lists them',
        ),
        ((*BARE, "foo=1"), 'unknown field "foo"; `attnsel info --fields` lists them'),
        ((*PLAIN, "--deny", "fa4"), 'no backend is called "fa4"; did you mean fa2?'),
        ((*PLAIN, "--query-len", "-3"), "--query-len -3 is not at least 1"),
        ((*PLAIN, "--query-len", "0"), "--query-len 0 is not at least 1"),
        ((*PLAIN, "--seq-len", "0"), "--seq-len 0 is not at least 1"),
        (
            (*PLAIN, "--query-len", "4096", "--seq-len", "3300"),
            "--query-len 4096 is longer than --seq-len 3300",
        ),
        ((*PLAIN, "--query-len", "ten"), "--query-len"),
        ((*BARE, "mla=false,kv_lora_rank=512"), "Only MLA layers have a KV latent."),
        (
            (*BARE, "mla=false,head_size=128,kv_cache_dtype=fp8_ds_mla"),
            "Packed MLA KV dtypes need an MLA layer.",
        ),
        ((*BARE, "num_heads=7,num_kv_heads=2"), "num_heads 7 is not a multiple"),
        ((*PLAIN, "--model", "llama-9"), "llama-9"),
        (("resolve", "--arch", "12.0", "--model", "glm-5.2-fp8", "--set", "tp=7"), "size 7"),
        ((*PLAIN, "--format", "yaml"), '"yaml" is not one of "table", "json"'),
        ((*PLAIN, "--frob"), "--frob"),
        ((*PLAIN, "surplus"), "surplus"),
        (("inspect", "fa4"), 'no backend is called "fa4"; did you mean fa2?'),
        (("explain", "--arch", "12.0", "--set", "hed_size=1"), "did you mean head_size?"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_wrong_use(run: Run, small: list[str], arguments: tuple[str, ...], said: str) -> None:
    ran = run(*arguments, *(small if "frob" not in str(arguments) else ()))
    assert ran.code == 2
    assert ran.out == ""
    assert said in ran.complaint


def test_an_option_without_its_value(run: Run, small: list[str]) -> None:
    ran = run(*PLAIN, *small, "--query-len")
    assert ran.code == 2
    assert '"--query-len" requires an argument' in ran.complaint


def test_no_device(run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from backends import probe
    from selector.values import Device

    monkeypatch.setattr(probe, "probe_device", lambda: Device("cpu"))
    ran = run("resolve", "--set", GQA, *small)
    assert ran.code == 2
    assert "--gpu" in ran.complaint
    assert "--arch" in ran.complaint


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "empty.yaml").write_bytes(b"")
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "wrong.yaml").write_text("attnsel: 1\nnom: x\nname: 3\n", "utf-8")
    names = ("empty.yaml", "binary.yaml", "wrong.yaml", "missing.yaml")
    return {name: tmp_path / name for name in names} | {"folder": tmp_path}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("empty.yaml", "CAP001 file is empty"),
        ("binary.yaml", "CAP007"),
        ("wrong.yaml", " more; run `attnsel lint "),
        ("missing.yaml", "no such file or directory"),
        ("folder", "is a directory"),
    ],
)
@pytest.mark.parametrize("command", ["resolve", "explain", "inspect", "info"])
def test_manifests_that_cannot_be_used(
    run: Run, files: dict[str, Path], command: str, name: str, said: str
) -> None:
    device = ("--arch", "12.0") if command in ("resolve", "explain") else ()
    ran = run(command, *device, "--manifest", files[name])
    assert ran.code == 2
    assert ran.out == ""
    assert said in ran.complaint
    assert str(files[name]) in ran.complaint


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, ""), (b"", "not JSON"), (b"\xff\xfe", "UTF-8"), (b"[1]", "not an object"), (b"{}", "")],
)
def test_models_that_cannot_be_read(
    run: Run, small: list[str], tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "config.json"
    if content is not None:
        file.write_bytes(content)
    ran = run("resolve", "--arch", "12.0", "--model", file, *small)
    assert ran.code == 2
    assert said in ran.complaint


def test_a_layer_of_a_model_cannot_be_contradicted(run: Run, small: list[str]) -> None:
    question = ("resolve", "--arch", "12.0", "--model", "glm-5.2-fp8", "--set", "mla=false")
    ran = run(*question, *small)
    assert ran.code == 2
    assert ran.complaint.startswith("glm-5.2-fp8: sparse layers: mla false, ")


def test_files_are_named_as_seen_from_here(
    run: Run, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files["folder"])
    ran = run("resolve", "--arch", "12.0", "--manifest", files["empty.yaml"])
    assert ran.complaint.startswith("empty.yaml:1:1: ")


def test_a_bug_is_one_line_too(run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from selector.report import answer

    def fail(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(answer, "answer_lines", fail)
    ran = run("resolve", "--arch", "12.0", "--set", SPARSE, *small)
    assert ran.code == 70
    assert "this is a bug in attnsel" in ran.complaint
    monkeypatch.setenv("ATTNSEL_TRACEBACK", "1")
    with pytest.raises(KeyError):
        run("resolve", "--arch", "12.0", "--set", SPARSE, *small)
