"""Devices that score and train."""

from __future__ import annotations

import torch


class DeviceError(ValueError):
    """A device that cannot be used; the message says what it must be."""


def device_of(text: str) -> torch.device:
    """The device that a text names. Raises DeviceError for one that torch does not know, or that is not
    here."""
    try:
        device = torch.device(text)
    except RuntimeError:
        raise DeviceError("must be a device that torch knows") from None
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        raise DeviceError(f"must be one that is here, {count} CUDA devices are")
    return device
