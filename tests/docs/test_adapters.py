"""The table of docs/adapters.md says what the adapters say of themselves."""

import re
from pathlib import Path

from backends.registry import ADAPTERS, get_adapter

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"


def test_every_adapter_of_flashinfer_is_listed_with_why_it_is_unverified() -> None:
    rows = re.findall(r"^\| `(flashinfer_\w+)` \|.*\| ([^|]*)\|$", PAGE.read_text(), re.M)
    listed = {name: why.strip().replace("`", "") for name, why in rows}
    assert listed == {
        name: get_adapter(name).unverified for name in ADAPTERS if name.startswith("flashinfer_")
    }
