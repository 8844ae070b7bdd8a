from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from tree_store.embedded import EmbeddedServerError, server_binary


def test_there_is_a_server_here() -> None:
    version = subprocess.run([server_binary(), "--version"], capture_output=True, text=True, check=True)

    assert "alkey server" in version.stdout


@pytest.mark.parametrize(("system", "machine"), [("Linux", "riscv64"), ("Windows", "AMD64")])
def test_a_machine_without_a_server_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(sys, "platform", system.lower())

    with pytest.raises(EmbeddedServerError, match="use a Redis or Valkey server of your own"):
        server_binary()


@pytest.mark.parametrize("port", ["0", "65536", "-1"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tree_store.embedded", "--dir", "unused", "--port", port],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert "must be in 1..65535" in done.stderr
