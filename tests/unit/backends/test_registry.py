import subprocess
import sys

import pytest

from backends.contract import Adapter
from backends.registry import (
    ADAPTERS,
    MissingAdapterError,
    UntrustedAdapterError,
    get_adapter,
    load_adapter,
)
from selector.errors import UnknownBackendError


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_listed_adapter_is_there_under_its_name(name: str) -> None:
    adapter = get_adapter(name)
    assert isinstance(adapter, Adapter)
    assert adapter.name == name


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownBackendError, match=r"no adapter runs 'flashmla'.*torch_sdpa_math"):
        get_adapter("flashmla")


@pytest.mark.parametrize(
    "path",
    [
        "os:system",
        "this:s",
        "backends_evil.adapter:run",
        "evil.backends.torch_sdpa:flash",
        "backends.torch_sdpa",
        "backends.torch_sdpa:flash:x",
        "backends.torch_sdpa:flash\n",
        "backends.torch_sdpa:__class__",
        "backends..os:system",
        "backends.torch_sdpa:math.plan",
        "../backends.torch_sdpa:flash",
        "",
    ],
)
def test_a_path_outside_the_trusted_package_is_not_imported(path: str) -> None:
    sys.modules.pop("this", None)
    with pytest.raises(UntrustedAdapterError, match="only backends"):
        load_adapter(path)
    assert "this" not in sys.modules


@pytest.mark.parametrize(
    "path",
    [
        "backends.torch_sdpa:warnings",
        "backends.registry:get_adapter",
        "backends.contract:annotations",
    ],
)
def test_only_an_adapter_is_given(path: str) -> None:
    with pytest.raises(MissingAdapterError, match="is not an adapter"):
        load_adapter(path)


@pytest.mark.parametrize("path", ["backends.nowhere:flash", "backends.torch_sdpa:fa9"])
def test_what_is_not_there_is_said(path: str) -> None:
    with pytest.raises(MissingAdapterError, match="is not there"):
        load_adapter(path)


def test_looking_up_an_adapter_imports_no_torch() -> None:
    code = (
        "import sys; from backends.registry import get_adapter;"
        "get_adapter('torch_sdpa_flash'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
