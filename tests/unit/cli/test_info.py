from __future__ import annotations

from importlib.metadata import version

import pytest

from selector.devices import architectures

from .conftest import Run


def test_versions_device_facts_and_manifest(run: Run, small: list[str]) -> None:
    ran = run("info", *small)
    assert ran.code == 0
    rows = {line.split()[0]: line.split()[1:] for line in ran.out.splitlines() if line[:2] == "  "}
    assert rows["attnsel"] == [version("attnsel")]
    assert rows["manifest"] == ["small", "1"]
    assert len(rows["digest"][0]) == 64
    assert "device" in rows
    assert "python" in rows


def test_json(run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from backends import probe
    from selector.values import Device, Facts

    monkeypatch.setattr(probe, "probe_device", lambda: Device("cuda", "9.0", "NVIDIA H200"))
    monkeypatch.setattr(probe, "probe_facts", lambda: Facts({"torch": None, "jit": True}))
    found = run("info", *small, "--format", "json").json
    assert found["device"] == {"platform": "cuda", "capability": "9.0", "product": "NVIDIA H200"}
    assert found["facts"] == {"torch": None, "jit": True}
    assert found["manifest"]["name"] == "small"
    out = run("info", *small).out
    assert "NVIDIA H200 (9.0)" in out


def test_gpus(run: Run) -> None:
    ran = run("info", "--gpus")
    for row in architectures():
        for product in row["products"]:
            assert product in ran.out
    assert len(run("info", "--gpus", "--format", "json").json) == len(architectures())


def test_fields(run: Run, small: list[str]) -> None:
    from selector.fields import BUILTIN

    listed = run("info", "--fields", *small, "--format", "json").json
    assert {f.name for f in BUILTIN} <= {f["name"] for f in listed["fields"]}
    assert listed["facts"].keys() == {"flashinfer-python", "torch", "jit"}
    out = run("info", "--fields", *small).out
    for said in ("also use_mla", "values float16, bfloat16", "set by --arch", "flashinfer-python"):
        assert said in out
    assert run("info", "--fields", "--gpus").code == 2
