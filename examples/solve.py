"""Asks one question and prints the answer, the vote, and the thoughts of the trace that stands for it.

python examples/solve.py [QUESTION]
"""

import sys

from thoughtbeam import Client

QUESTION = "Start with 871 and work modulo 1000. a) +723 b) *7 c) -543. Report the value after c."


def main() -> None:
    question = sys.argv[1] if len(sys.argv) > 1 else QUESTION
    with Client() as client:
        result = client.solve(question, policy="gambit", answer_mode="integer")
        if result.answer is None:
            sys.exit(f"no answer; look at tree {result.tree_id}")
        print(f"{result.answer.text}, with {result.answer.share:.0%} of the vote")
        for vote in result.votes:
            print(f"  {vote.answer}: weight {vote.weight:.2f}, traces {list(vote.nodes)}")
        for thought in client.trace(result.tree_id, result.answer.node).thoughts:
            score = "unscored" if thought.score is None else f"{thought.score:.3f}"
            print(f"{score}  {thought.text.strip()}")


if __name__ == "__main__":
    main()
