"""Stacks of several processes become shares by process and function."""

from __future__ import annotations

from bench.spying import shares

STACKS = """\
process 7:"python -m bench.throughput";main (bench/throughput.py:9);step (site/decoder_worker/worker.py:5) 30
process 7:"python -m bench.throughput";main (bench/throughput.py:8);sleep (asyncio/tasks.py:1) 10
process 9:"VLLM::EngineCore";run (lib/site-packages/vllm/core.py:3);mm (lib/site-packages/torch/nn.py:1) 60
process 9:"VLLM::EngineCore";run (lib/site-packages/vllm/core.py:4) 20
process 9:"VLLM::EngineCore";run (threading.py:4);wait (site/x.py:3);Condition.wait (threading.py:3) 90
"""


def test_shares_are_of_each_process_by_itself() -> None:
    assert shares(STACKS) == [
        ["process EngineCore", "mm (torch/nn.py)", "75.0%", "75.0%"],
        ["process EngineCore", "run (vllm/core.py)", "25.0%", "100.0%"],
        ["process EngineCore", "all of Thoughtbeam's own code", "0.0%", ""],
        ["process bench.throughput", "step (decoder_worker/worker.py)", "75.0%", "75.0%"],
        ["process bench.throughput", "sleep (asyncio/tasks.py)", "25.0%", "25.0%"],
        ["process bench.throughput", "all of Thoughtbeam's own code", "75.0%", ""],
    ]
