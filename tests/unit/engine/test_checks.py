"""What is refused before an engine is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from decoder_worker.engine.base import EngineError
from decoder_worker.engine.checks import check_model


@pytest.mark.parametrize("model", ["/nowhere", "./nowhere", "../nowhere", "~/nowhere", "models/of/nobody"])
def test_a_path_that_is_no_directory_is_not_looked_for_on_the_hub(model: str) -> None:
    with pytest.raises(EngineError, match=f"^model {model}: there is no such directory$"):
        check_model(model)


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()

    with pytest.raises(EngineError, match="there is no such directory"):
        check_model(str(tmp_path / "model.safetensors"))


def test_a_directory_is_a_model_once_it_has_a_config(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=f"^model {tmp_path} has no config.json"):
        check_model(str(tmp_path))

    (tmp_path / "config.json").touch()
    check_model(str(tmp_path))


@pytest.mark.parametrize("model", ["Qwen/Qwen3-4B", "gpt2"])
def test_a_name_on_the_hub_is_left_to_the_hub(model: str) -> None:
    check_model(model)
