"""The processes that train one run together, as the variable TF_CONFIG names them."""

import dataclasses
import os

import msgspec

from bert_flow_tf.errors import UserError
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
    """Workers that take the steps of one run together; the first is the chief, who alone writes.

    Attributes:
      addresses: of the workers, `HOST:PORT`.
      names: TensorFlow's of the workers.
      index: of this process among them.
    """

    addresses: tuple[str, ...]
    names: tuple[str, ...]
    index: int

    @property
    def is_chief(self) -> bool:
        return self.index == 0

    def worker(self, index: int) -> str:
        """A worker in words."""
        return f"worker {index} ({self.addresses[index]})"

    @classmethod
    def of_environment(cls) -> "Cluster | None":
        """The cluster that TF_CONFIG names; None where it is not set or names one worker alone.

        Raises:
          UserError: it is not JSON, names no cluster of workers, or a task that is not in the cluster.
        """
        text = os.environ.get(VARIABLE)
        if not text:
            return None
        with reading(VARIABLE, _EXPECTED):
            config = msgspec.json.decode(text, type=_Config)
        other = sorted(config.cluster.keys() - {"chief", "worker"})
        if other:
            raise UserError(f"{VARIABLE}: cluster: found tasks of type {other[0]}, expected chief and worker alone")
        if len(config.cluster.get("chief", [])) > 1:
            raise UserError(f"{VARIABLE}: cluster.chief: found {len(config.cluster['chief'])}, expected at most one")
        tasks = [(kind, i) for kind in ("chief", "worker") for i in range(len(config.cluster.get(kind, [])))]
        if not tasks:
            raise UserError(f"{VARIABLE}: cluster: found no worker, expected {_EXPECTED}")
        addresses = [config.cluster[kind][i] for kind, i in tasks]
        for address in addresses:
            host, _, port = address.rpartition(":")
            if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
                raise UserError(f"{VARIABLE}: cluster: found {address!r}, expected HOST:PORT")
        if len(set(addresses)) < len(addresses):
            raise UserError(f"{VARIABLE}: cluster: found an address twice, expected one for each worker")
        task = config.task.type, config.task.index
        if task not in tasks:
            raise UserError(
                f"{VARIABLE}: task: found {task[0]} {task[1]}, expected one of the cluster's "
                f"({', '.join(f'{kind} {i}' for kind, i in tasks)})"
            )
        if len(tasks) == 1:
            return None
        names = tuple(f"/job:{kind}/replica:0/task:{i}" for kind, i in tasks)
        return cls(tuple(addresses), names, tasks.index(task))
