"""All key names of the tree store. A tree's keys share one hash tag, so that one script can change them all.

Retention: every key of a tree is created with an expiry, `deadline + RETENTION`, and gets `end + RETENTION`
when the tree ends. `tb:trees`, `tb:queue` and `tb:workers` do not expire; the sweep trims them.
"""

from __future__ import annotations

from collections.abc import Iterable

from tree_store.model import NodeState

# Seconds that a tree can be read after it has ended; lua/shared/tree.lua has the same number in milliseconds.
RETENTION = 24 * 3600
# Stands for the mean score of an unscored node in the state zsets: below all scores, which are in [0, 1].
UNSCORED = -1

TREES = "tb:trees"  # zset: all trees by creation time, written before the tree itself
QUEUE = "tb:queue"  # stream of queued trees
WORKERS = "tb:workers"  # zset: workers by the time they were last heard of


def worker_key(worker: str) -> str:
    """Hash with a TTL: what a worker says of itself."""
    return f"tb:worker:{worker}"


class TreeKeys:
    """Keys of one tree: `tb:{<tree_id>}:…`. Raises ValueError for an id that would break the hash tag."""

    def __init__(self, tree_id: str) -> None:
        if not tree_id or "{" in tree_id or "}" in tree_id:
            raise ValueError(f"tree id {tree_id!r}: must not be empty nor contain braces")
        self.tree_id = tree_id
        self._prefix = f"tb:{{{tree_id}}}:"
        self.meta = self._prefix + "meta"  # hash: state, epoch, counters, outcome, …
        self.events = self._prefix + "events"  # stream: every transition, in order
        self.policy = self._prefix + "policy"  # string: the policy's state, JSON
        self.rounds = self._prefix + "rounds"  # stream: one record per tournament
        self.outcome = self._prefix + "outcome"  # string: the whole outcome, JSON
        self.deleted = self._prefix + "deleted"  # hash: what was meta, while the tree is being deleted

    def node(self, number: int) -> str:
        """Hash: state, parent, mean score, …"""
        return f"{self._prefix}node:{number}"

    def tokens(self, number: int) -> str:
        """String: its own token ids, packed int32."""
        return f"{self._prefix}tokens:{number}"

    def text(self, number: int) -> str:
        """String: its own text, UTF-8."""
        return f"{self._prefix}text:{number}"

    def thoughts(self, number: int) -> str:
        """String: its own thoughts, packed (see packing.py)."""
        return f"{self._prefix}thoughts:{number}"

    def confidences(self, number: int) -> str:
        """String: one confidence per own token, packed float32; only where its policy asked for them."""
        return f"{self._prefix}confidences:{number}"

    def history(self, number: int) -> str:
        """String: what a scorer with a history keeps of its own scored thoughts, float16 rows one after the
        other; only where there is such a scorer."""
        return f"{self._prefix}history:{number}"

    def state(self, state: NodeState) -> str:
        """Zset: numbers of the nodes in this state, by mean score."""
        return f"{self._prefix}state:{state}"

    def of_tree(self) -> list[str]:
        """The keys that every script of a tree is given first, in this order."""
        return [self.meta, self.events]

    def of_batch(self) -> list[str]:
        """The keys that every script which changes nodes is given first, in this order."""
        return [*self.of_tree(), *self._others()]

    def of_creation(self) -> list[str]:
        """The keys that the script which creates the tree is given, in this order."""
        return [*self.of_tree(), self.deleted]

    def of_deletion(self) -> list[str]:
        """The keys that the script which deletes the tree is given, in this order."""
        return [*self.of_creation(), *self._others()]

    def of_nodes(self, numbers: Iterable[int]) -> list[str]:
        """All keys of these nodes."""
        return [
            key
            for number in numbers
            for key in (
                self.node(number),
                self.tokens(number),
                self.text(number),
                self.thoughts(number),
                self.confidences(number),
                self.history(number),
            )
        ]

    def _others(self) -> list[str]:
        return [self.policy, self.rounds, self.outcome, *map(self.state, NodeState)]
