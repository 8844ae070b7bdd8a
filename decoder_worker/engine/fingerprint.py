"""A model's fingerprint: tells whether a scorer was trained for the model that an engine serves."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from thoughtbeam.runtime.weight_files import add_weight_files

# Keys that change when the same model is saved again by another release, or that do not touch its numbers.
_VOLATILE = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


def model_fingerprint(path: str | Path) -> str:
    """32 hexadecimal digits that tell one model from another, whatever its directory is called.

    SHA-256 over config.json (without the keys that vary between releases of the library that saved it) and
    the name, size, first and last MiB of every weight file: a second of reading, also for 100 GB of weights.

    path: a Hugging Face model directory. Raises FileNotFoundError when it has no config.json or no weights.
    """
    directory = Path(path)
    config_file = directory / "config.json"
    if not config_file.is_file():
        raise FileNotFoundError(f"{directory} is not a model directory: it has no config.json")
    weights = next((files for pattern in _WEIGHTS if (files := sorted(directory.glob(pattern)))), None)
    if weights is None:
        raise FileNotFoundError(f"{directory} has no weights ({' or '.join(_WEIGHTS)})")

    config = json.loads(config_file.read_text(encoding="utf-8"))
    digest = hashlib.sha256()
    stable = {key: value for key, value in config.items() if key not in _VOLATILE}
    digest.update(json.dumps(stable, sort_keys=True).encode())
    add_weight_files(digest, weights)
    return digest.hexdigest()[:32]
