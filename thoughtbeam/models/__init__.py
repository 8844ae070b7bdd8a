"""The model and the scorer that come with the package."""

from pathlib import Path

# The tiny reasoner, in Hugging Face layout.
BUNDLED_MODEL = Path(__file__).parent / "tiny_reasoner"
# A scorer lies beside its model under this name.
SCORER_FILE = "scorer.pt"
BUNDLED_SCORER = BUNDLED_MODEL / SCORER_FILE
