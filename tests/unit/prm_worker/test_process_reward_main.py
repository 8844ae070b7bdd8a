"""One scorer per worker, of hidden states or of texts; only that of texts needs vLLM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from prm_worker.main import main, parse
from tests.process_reward_model import SPECIAL, make_tokenizer


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ([], "neither is (default)"),
        (["--scorer", "scorer.pt", "--process-reward", "model"], "both are (flag --scorer)"),
    ],
)
def test_exactly_one_scorer_is_given(
    flags: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(flags)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said == f"prm_worker: scorer: must be given, or else process_reward; {problem}\n"


def test_what_can_be_set_on_the_engine() -> None:
    flags = ["--max-context", "4096", "--dtype", "bfloat16", "--gpu-memory", "0.3"]
    config = parse(["--process-reward", "Qwen/Qwen2.5-Math-PRM-7B", *flags])
    assert (config.max_context, config.dtype, config.gpu_memory) == (4096, "bfloat16", 0.3)


def test_a_worker_for_hidden_states_needs_no_engine() -> None:
    code = (
        "import sys; import prm_worker.main, prm_worker.server, prm_worker.scorer_file;"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(run.stdout.split())
    assert "torch" in loaded
    assert not loaded & {"vllm", "transformers", "tokenizers", "safetensors", "jinja2"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of transformers' own dependencies
def test_a_model_that_cannot_be_read_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--process-reward", str(tmp_path / "nowhere"), "--listen", "127.0.0.1:0"]) == 1
    assert "nowhere has no usable tokenizer" in capsys.readouterr().err

    make_tokenizer(SPECIAL[:3]).save_pretrained(tmp_path)
    assert main(["--process-reward", str(tmp_path), "--listen", "127.0.0.1:0"]) == 1
    assert "has no special token <extra_0>" in capsys.readouterr().err
