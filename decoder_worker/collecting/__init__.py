"""Collecting: traces of questions with known answers, for the training of scorers."""
