"""The files that ship with attnsel, in a wheel or in a checkout."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DEFAULT_MANIFEST", "manifest_path", "packaged", "resource"]

DEFAULT_MANIFEST = "capabilities.yaml"

_PACKAGE = Path(__file__).parent


def packaged(name: str) -> Path:
    """The path of a data file that lies inside the package."""
    return _PACKAGE / name


def resource(name: str) -> Path:
    """The path of a shipped file or folder: ``capabilities.yaml``, ``schemas``, ``manifests``.

    In a wheel these lie in ``selector/data``; in a checkout, at the top.
    """
    packaged = _PACKAGE / "data" / name
    return packaged if packaged.exists() else _PACKAGE.parent / name


def manifest_path(reference: str) -> Path:
    """The path of a manifest given by path or, without a suffix, by shipped name."""
    path = Path(reference)
    if path.suffix or path.exists() or "/" in reference:
        return path
    shipped = resource("manifests") / f"{reference}.yaml"
    return shipped if shipped.exists() else path
