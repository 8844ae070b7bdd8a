"""What the commands of this package share on the command line."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch

from prm_worker.devices import DeviceError, device_of
from thoughtbeam.runtime.arguments import whole

BAD_INPUT, FAILED = 2, 1  # exit statuses


def command(name: str, description: str) -> argparse.ArgumentParser:
    """A parser with --data, --device and --threads."""
    parser = argparse.ArgumentParser(
        prog=f"thoughtbeam scorer {name}", description=description, allow_abbrev=False
    )
    parser.add_argument(
        "--data",
        required=True,
        nargs="+",
        type=Path,
        metavar="DIR",
        help="data sets of one model, as `thoughtbeam scorer collect` made them",
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 … (default cpu)")
    parser.add_argument(
        "--threads",
        type=whole(0),
        default=1,
        help="of the CPU; 0: torch's choice (default 1: small batches gain nothing from more, and on a busy "
        "machine these wait for each other)",
    )
    return parser


def prepare(options: argparse.Namespace) -> torch.device:
    """The device, with torch set up so that the same seed gives the same numbers. Raises ValueError for one
    that is not there."""
    try:
        device = device_of(options.device)
    except DeviceError as error:
        raise ValueError(f"device: is {options.device!r}; {error}") from None
    if options.threads:
        torch.set_num_threads(options.threads)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or CUDA's sums depend on their schedule
    torch.use_deterministic_algorithms(True)
    return device


def rate(text: str) -> float:
    """Reads a learning rate, in (0, 1]."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"is {text!r}; must be a number above 0, up to 1")
    return value


def share(text: str) -> float:
    """Reads a share, in [0, 0.5]."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 0.5:
        raise argparse.ArgumentTypeError(f"is {text!r}; must be a number from 0 to 0.5")
    return value
