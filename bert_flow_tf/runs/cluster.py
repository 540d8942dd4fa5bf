"""The processes that train one run together, as the variable TF_CONFIG names them."""

import dataclasses
import os

import msgspec

from bert_flow_tf.files.reading import reading

VARIABLE = "TF_CONFIG"
_EXPECTED = '{"cluster": {"worker": ["HOST:PORT", …]}, "task": {"type": "worker", "index": N}}'


class _Task(msgspec.Struct):
    type: str
    index: int


class _Config(msgspec.Struct):
    cluster: dict[str, list[str]]
    task: _Task


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The number of this worker and how many there are; worker 0 is the chief, who alone writes."""

    index: int = 0
    count: int = 1

    @classmethod
    def of_environment(cls) -> "Cluster":
        """Read TF_CONFIG; raise `UserError` if it is no cluster of workers that holds its task."""
        text = os.environ.get(VARIABLE)
        if not text:
            return cls()
        with reading(VARIABLE, _EXPECTED):
            config = msgspec.json.decode(text, type=_Config)
            tasks = [(kind, i) for kind in ("chief", "worker") for i in range(len(config.cluster.get(kind, [])))]
            return cls(tasks.index((config.task.type, config.task.index)), len(tasks))

    @property
    def is_chief(self) -> bool:
        return self.index == 0

    def rows(self, batch_size: int) -> slice:
        """Return this worker's rows of a global batch; the first workers have one more where it does not divide."""
        least, more = divmod(batch_size, self.count)
        start = self.index * least + min(self.index, more)
        return slice(start, start + least + (self.index < more))
