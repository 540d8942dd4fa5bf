"""The workers that train one run together."""

import dataclasses
import json
import os

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import reading


class LostWorker(UserError):
    """Another worker has ended; repeat the command to resume."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """This worker's index and the worker count; worker 0 is the chief."""

    index: int = 0
    count: int = 1

    @classmethod
    def from_environment(cls) -> "Cluster":
        """Read TF_CONFIG; raise `UserError` if it is invalid."""
        text = os.environ.get("TF_CONFIG")
        if not text:
            return cls()
        with reading(
            "TF_CONFIG",
            '{"cluster": {"worker": ["HOST:PORT", …]}, "task": {"type": "worker", "index": N}}',
        ):
            cluster, task = (json.loads(text)[name] for name in ("cluster", "task"))
            tasks = [
                (kind, i) for kind in ("chief", "worker") for i in range(len(cluster.get(kind, [])))
            ]
            return cls(tasks.index((task["type"], task["index"])), len(tasks))

    @property
    def is_chief(self) -> bool:
        return self.index == 0

    def rows(self, batch_size: int) -> slice:
        """Return this worker's rows of a batch."""
        size, rest = divmod(batch_size, self.count)
        start = self.index * size + min(self.index, rest)
        return slice(start, start + size + (self.index < rest))
