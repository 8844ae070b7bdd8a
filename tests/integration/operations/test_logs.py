"""What the logs of the programs say of a search at INFO: neither what was asked nor what was answered."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import torch

from tests.integration.operations.conftest import PASSWORD, Store
from tests.integration.operations.programs import Program, running
from tests.integration.operations.test_health import SCRIPTED
from tests.unit.prm_worker.weights import step_weights
from thoughtbeam import AsyncClient
from thoughtbeam.errors import InvalidArgumentError
from thoughtbeam.runtime.probe import SERVING

QUESTION, ANSWER = "marker-of-the-question", "4711088"


@pytest.mark.parametrize("form", ["text", "json"])
async def test_no_log_and_no_command_line_has_a_question_an_answer_or_a_password(
    tmp_path: Path, store: Store, form: str
) -> None:
    weights, gate, answer = tmp_path / "scorer.pt", tmp_path / "gate", tmp_path / "answer"
    torch.save(step_weights(4), weights)
    gate.touch()
    answer.write_text(ANSWER)
    environment = {**store.environment, "THOUGHTBEAM_LOG_FORMAT": form}
    async with AsyncExitStack() as stack:

        async def start(name: str, *flags: object, module: str = "") -> Program:
            program = await stack.enter_async_context(
                running(tmp_path, name, *flags, module=module, environment=environment)
            )
            if name != "decoder_worker":
                await program.becomes(SERVING)
            return program

        prm = await start("prm_worker", "--scorer", weights)
        gateway = await start("gateway")
        flags = (
            "--model",
            "scripted",
            "--profile",
            "tiny",
            "--gateway",
            gateway.target,
            "--scorer",
            prm.target,
        )
        decoder = await start("decoder_worker", *flags, module=f"{SCRIPTED} {gate} {answer}")
        await decoder.becomes(SERVING)
        programs = [prm, gateway, decoder]

        async with AsyncClient(gateway.target) as client:
            result = await client.solve(f"{QUESTION}?", policy="gambit")
            assert result.text == ANSWER
            with pytest.raises(InvalidArgumentError):
                await client.solve(f"{QUESTION}?", policy="gambit", parameters={"C": -1})

        lines = [program.command_line for program in programs]
        for program in reversed(programs):
            assert await program.stop() == 0
        logs = {program.name: program.log.read_text() for program in programs}

    # they were there to be seen
    assert "tree_accepted" in logs["gateway"]
    assert "gateway_connected" in logs["decoder_worker"]
    assert "serving" in logs["prm_worker"]
    for text in (*logs.values(), *(line.decode() for line in lines)):
        for secret in (QUESTION, ANSWER, PASSWORD):
            assert secret not in text
    for text in logs.values():
        assert "Traceback" not in text
        for line in text.splitlines():
            assert (line[0] == "{") == (form == "json")
            assert form == "text" or json.loads(line)["level"] in ("info", "warning")
