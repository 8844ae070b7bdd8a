"""The tiny reasoner: its task, its demonstrators, its trainer and its export.

A language model of 0.8 million parameters that reasons step by step, errs and over-thinks, so that policies
can be compared on any machine. `python -m bench.tiny_reasoner.train` makes one;
`python -m bench.tiny_reasoner.questions` makes the question lists in `bench/questions`.
"""
