"""Which element type the engine computes in: what ``--dtype auto`` comes to on a device."""

from __future__ import annotations

from selector.serving.commands.command import Command
from selector.values import Device, Model

__all__ = ["pools", "refused_dtype", "settled_dtype"]

_NO_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})
"""Model types that overflow in float16; the engine refuses it for them."""

_ENCODERS = frozenset({"encoder_only"})


def pools(command: Command, model: Model) -> bool:
    """Whether the engine takes the model for one that pools, as far as it can be told here."""
    runner, convert = command.setting("runner"), command.setting("convert")
    if runner is not None and runner.value != "auto":
        return bool(runner.value == "pooling")
    if convert is not None and convert.value not in ("auto", "none"):
        return True
    return {group.layer.get("attn_type") for group in model.groups} == _ENCODERS


def settled_dtype(declared: str, model: Model, device: Device, *, pooling: bool) -> str:
    """What ``auto`` makes of the type that a checkpoint declares.

    Args:
        declared: the type in the config.
        model: whose it is.
        device: where it is to run.
        pooling: whether it is to pool; such models take float16 rather than float32.
    """
    able = _able(device)
    if able is None:
        return declared
    able = [one for one in able if one != "float16" or model.model_type not in _NO_FLOAT16]
    preferred = "float16" if pooling and "float16" in able else able[0]
    if declared == "float32" or declared not in able:
        return preferred
    return declared


def refused_dtype(dtype: str, model: Model, device: Device) -> str:
    """Why a type that was asked for is refused; empty when it is not."""
    able = _able(device)
    if dtype == "bfloat16" and able is not None and dtype not in able:
        return f"needs compute capability 8.0 and {device.capability} is asked about; float16 runs"
    if dtype == "float16" and model.model_type in _NO_FLOAT16:
        return f"is refused for {model.model_type} models, which overflow in it; bfloat16 is not"
    return ""


def _able(device: Device) -> list[str] | None:
    """The types that a device computes in, the first preferred; ``None`` where nobody says."""
    if device.platform != "cuda" or device.capability is None:
        return None
    major = int(device.capability.partition(".")[0])
    return ["bfloat16", "float16", "float32"] if major >= 8 else ["float16", "float32"]
