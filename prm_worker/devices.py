"""Devices that score and train."""

from __future__ import annotations

import torch


class DeviceError(ValueError):
    """A device that cannot be used; the message says what it must be."""


def device_of(text: str) -> torch.device:
    """The device that a text names. Raises DeviceError for one that is neither the CPU nor a CUDA device that
    is here."""
    count = torch.cuda.device_count()
    device: torch.device | None
    try:
        device = torch.device(text)
    except RuntimeError:
        device = None
    # torch knows the names of many that this machine has not, and only fails when one is used
    if device is None or (device.index or 0) >= {"cpu": 1, "cuda": count}.get(device.type, 0):
        raise DeviceError(f"must be cpu, or cuda or cuda:INDEX ({count} CUDA devices are here)")
    return device
