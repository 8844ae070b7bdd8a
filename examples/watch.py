"""Starts a search and prints its tournaments as they are held. Whoever stops it can go on later.

python examples/watch.py [QUESTION]        start a search and watch it
python examples/watch.py --resume ID EVENT watch it again, from an event on
"""

import sys

from thoughtbeam import Client, Round, TreeTransition

QUESTION = "Start with 871 and work modulo 1000. a) +723 b) *7 c) -543. Report the value after c."


def watch(client: Client, tree_id: str, last: str) -> None:
    try:
        for event in client.watch(tree_id, last):
            last = event.event_id
            match event:
                case TreeTransition():
                    print(f"search {event.state}")
                case Round():
                    pruned, branched = list(event.pruned), list(event.branched)
                    print(f"tournament {event.number}: pruned {pruned}, branched {branched}")
    except KeyboardInterrupt:
        sys.exit(f"the search goes on: python examples/watch.py --resume {tree_id} {last}")
    print(f"answer: {client.wait(tree_id).text}")


def main() -> None:
    with Client() as client:
        match sys.argv[1:]:
            case ["--resume", tree_id, last]:
                watch(client, tree_id, last)
            case arguments:
                question = arguments[0] if arguments else QUESTION
                tree = client.submit(question, policy="gambit", answer_mode="integer")
                watch(client, tree.id, "")


if __name__ == "__main__":
    main()
