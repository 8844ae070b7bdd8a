"""Only devices that can be used are accepted."""

from __future__ import annotations

import pytest
import torch

from prm_worker.devices import DeviceError, device_of


@pytest.fixture(autouse=True)
def _two_cuda_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.parametrize("text", ["cpu", "cpu:0", "cuda", "cuda:0", "cuda:1"])
def test_the_cpu_and_cuda_devices_that_are_here(text: str) -> None:
    assert device_of(text) == torch.device(text)


@pytest.mark.parametrize(
    "text",
    ["", "abacus", "cuda:2", "cuda:-1", "cpu:1", "meta", "mps", "xpu", "hpu", "vulkan", "privateuseone"],
)
def test_any_other_is_refused_with_those_that_may_be(text: str) -> None:
    with pytest.raises(
        DeviceError, match=r"^must be cpu, or cuda or cuda:INDEX \(2 CUDA devices are here\)$"
    ):
        device_of(text)
