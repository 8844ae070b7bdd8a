"""Scores of thoughts: rows to the prm worker, and what comes back."""
