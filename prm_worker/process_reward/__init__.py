"""Process reward models (kind `process_reward`): text in, one score per step out, from a vLLM pooling engine.

Models in the form of Qwen2.5-Math-PRM (arXiv 2501.07301): each step of an answer is followed by a separator
token, at whose position the model classifies the step in two classes, bad and good.
"""
