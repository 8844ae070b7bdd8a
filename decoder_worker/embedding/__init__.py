"""Vectors of thoughts: texts to the embedder, and what comes back."""
