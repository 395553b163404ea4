"""The files that ship with attnsel, in a wheel or in a checkout."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pathlib costs a sixth of importing selector, and most answers need no file
    from pathlib import Path

__all__ = ["DEFAULT_MANIFEST", "manifest_names", "manifest_path", "packaged", "resource"]

DEFAULT_MANIFEST = "capabilities.yaml"


@cache
def _package() -> Path:
    from pathlib import Path

    return Path(__file__).parent


def packaged(name: str) -> Path:
    """The path of a data file that lies inside the package."""
    return _package() / name


def resource(name: str) -> Path:
    """The path of a shipped file or folder: ``capabilities.yaml``, ``schemas``, ``manifests``.

    In a wheel these lie in ``selector/data``; in a checkout, at the top.
    """
    shipped = _package() / "data" / name
    return shipped if shipped.exists() else _package().parent / name


def manifest_path(reference: str) -> Path:
    """The path of a manifest: a shipped one by name, else a file by path.

    What holds a ``/`` or ends in ``.yaml`` or ``.yml`` is a path, never a name.
    """
    from pathlib import Path

    path = Path(reference)
    if "/" in reference or path.suffix in (".yaml", ".yml"):
        return path
    file = f"{reference}.yaml"
    shipped = resource(file if file == DEFAULT_MANIFEST else f"manifests/{file}")
    return shipped if shipped.exists() else path


def manifest_names() -> list[str]:
    """The names of the manifests that ship, the default one first."""
    others = sorted(path.stem for path in resource("manifests").glob("*.yaml"))
    return [DEFAULT_MANIFEST.removesuffix(".yaml"), *others]
