"""A manifest asked about one device only."""

from __future__ import annotations

import msgspec

from selector.domains import Domain
from selector.fields import ABSENT
from selector.manifest import Manifest
from selector.rules import Allowed, Constraint, Test, When
from selector.values import Device, Position

__all__ = ["only_on"]


def only_on(manifest: Manifest, device: Device) -> Manifest:
    """The manifest where no other device can exist: what is counted is counted on this one."""
    here = Position(manifest.ref.file, 1, 1)
    code = ABSENT if device.code is None else device.code
    tests = tuple(
        Test(field, Allowed(Domain.of(value)), here)
        for field, value in (("platform", device.platform), ("capability", code))
    )
    only = Constraint(When(), When(tests), (), "DEVICE", "Only this device is asked about.", here)
    return msgspec.structs.replace(manifest, space=(*manifest.space, only))
