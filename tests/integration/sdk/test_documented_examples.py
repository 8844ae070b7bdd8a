"""Every code block of docs/sdk.md and every file in examples/ runs against a real gateway."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from tests.integration.gateway.harness import Gateway
from tests.integration.sdk.answering_worker import AnsweringWorker

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
# a shell that ends at the first command that fails
RUN = {"python": [sys.executable, "-W", "error", "-c"], "sh": ["bash", "-euo", "pipefail", "-c"]}


def blocks() -> list[tuple[str, str]]:
    """Language and code of every block, in the order of the page."""
    return BLOCK.findall((ROOT / "docs" / "sdk.md").read_text())


def examples() -> list[Path]:
    return sorted((ROOT / "examples").glob("*.py"))


async def run(gateway: Gateway, *command: str) -> tuple[int | None, str, str]:
    """Exit code, output and errors of a command of a user of this gateway."""
    folder = os.path.dirname(sys.executable)
    environment = {
        **os.environ,
        "THOUGHTBEAM_ENDPOINT": f"127.0.0.1:{gateway.port}",
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
    }
    running = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        cwd=ROOT,
    )
    output, errors = await running.communicate()
    return running.returncode, output.decode(), errors.decode()


def test_there_are_examples() -> None:
    languages = [language for language, _ in blocks()]
    assert languages.count("python") > 8
    assert set(languages) == RUN.keys()
    assert len(examples()) == 3


@pytest.mark.parametrize(
    ("language", "code"), blocks(), ids=[f"{n}-{language}" for n, (language, _) in enumerate(blocks())]
)
async def test_a_block_of_the_page(
    gateway: Gateway, worker: AnsweringWorker, language: str, code: str
) -> None:
    code_of_exit, output, errors = await run(gateway, *RUN[language], code)

    assert (code_of_exit, errors) == (0, "")
    assert output


@pytest.mark.parametrize("path", examples(), ids=lambda path: path.name)
async def test_a_file_of_examples(gateway: Gateway, worker: AnsweringWorker, path: Path) -> None:
    code, output, errors = await run(gateway, *RUN["python"][:-1], str(path))

    assert (code, errors) == (0, "")
    assert "42" in output


async def test_the_watch_example_goes_on_where_it_was_told(gateway: Gateway, worker: AnsweringWorker) -> None:
    script = str(ROOT / "examples" / "watch.py")
    _, whole, _ = await run(gateway, sys.executable, script)
    (record,) = await gateway.store.list_trees(2, None)
    events = await gateway.store.events(record.tree_id, "")
    before_last = events[-2].event_id

    _, rest, _ = await run(gateway, sys.executable, script, "--resume", record.tree_id, before_last)

    assert whole.splitlines()[-2:] == rest.splitlines() == ["search succeeded", "answer: 42"]
    assert len(whole.splitlines()) > 3
