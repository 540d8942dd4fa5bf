"""Shards to workers that Ray starts, here or in a cluster: each loads the model once, and embeds one at a time."""

import collections
import contextlib
import importlib.util
import logging
import os
import pathlib
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.ownership import make_directory, sweep
from bert_flow_tf.scale.bulk import Embedder, Part, Settings, ShardError, embed_shard, trusted_part
from bert_flow_tf.scale.shards import Shard

# How often a shard is tried, and how often workers may die before they have loaded the model.
_ATTEMPTS = 3
# Bytes; Ray would take a third of the memory for what is none of its objects.
_OBJECT_STORE = 100 << 20

Task = tuple[Shard, Part | None]


class _Worker:
    """The actor; it returns errors, which then need not be pickled, and whatever it raises is a bug."""

    def __init__(self, load: Callable[[], Embedder], folder: str, settings: Settings, threads: int, cwd: str) -> None:
        os.chdir(cwd)
        # Before TensorFlow is loaded.
        for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
            os.environ[name] = str(threads)
        self._load, self._folder, self._settings = load, folder, settings

    def identity(self) -> tuple[str, Any]:
        """The fingerprint of the model, which it loads, and its width."""
        try:
            self._model = self._load()
        except UserError as error:
            return "error", (str(error), error.arguments)
        self._fingerprint = self._model.fingerprint
        return "model", (self._fingerprint, self._model.embedding_size)

    def embed(self, shard: Shard, known: Part | None) -> tuple[str, Any]:
        try:
            part = trusted_part(shard, self._folder, known)
            return "part", part or embed_shard(self._model, shard, self._folder, self._settings)
        except ShardError as error:
            return "shard", (str(error), error.arguments)
        except UserError as error:
            return "error", (str(error), error.arguments)


class RayEngine:
    """The engine of a `Job` whose workers are actors; `on_ray` makes one.

    A worker that dies, or takes for a shard five times as long as any shard took so far and more than `patience`
    seconds, is replaced, and its shard goes to the next one that is free; after three times it cannot be embedded.

    Attributes:
      model, embedding_size: fingerprint and width of the workers' model, which all must have.
    """

    def __init__(self, start: Callable[[], Any], workers: int, patience: float) -> None:
        self._start, self._patience = start, patience
        self._longest = 0.0
        self._deaths = 0
        self._idle: list[Any] = []
        # What is awaited of which worker, for which task, since when.
        self._running: dict[Any, tuple[Any, Task | None, float]] = {}
        self.model, self.embedding_size = "", 0
        for _ in range(workers):
            self._add_worker()
        while not self.model:
            # What workers that die leave undone is nothing yet.
            collections.deque(self._finished(), maxlen=0)

    def __call__(self, tasks: Iterable[Task]) -> Iterator[tuple[Shard, Part | ShardError]]:
        waiting: collections.deque[Task] = collections.deque()
        attempts: collections.Counter[str] = collections.Counter()
        following = iter(tasks)
        while True:
            while self._idle:
                task = waiting.popleft() if waiting else next(following, None)
                if task is None:
                    break
                worker = self._idle.pop()
                self._running[worker.embed.remote(*task)] = worker, task, time.monotonic()
            if not any(task for _, task, _ in self._running.values()) and not waiting:
                return
            for task, outcome in self._finished():
                attempts[task[0].name] += 1
                if outcome is not None:
                    yield task[0], outcome
                elif attempts[task[0].name] < _ATTEMPTS:
                    waiting.append(task)
                else:
                    yield task[0], ShardError(f"{task[0].name}: its worker died or stalled {_ATTEMPTS} times")

    def _add_worker(self) -> None:
        worker = self._start()
        self._running[worker.identity.remote()] = worker, None, time.monotonic()

    def _finished(self) -> Iterator[tuple[Task, Part | ShardError | None]]:
        """Yields tasks that ended and their outcomes, None of a worker that died, after a second at most."""
        import ray

        ready, _ = ray.wait(list(self._running), timeout=1)
        now = time.monotonic()
        for ref in ready:
            worker, task, begun = self._running.pop(ref)
            try:
                kind, value = ray.get(ref)
            except ray.exceptions.RayActorError:
                yield from self._replaced(task)
                continue
            if kind == "error":
                raise UserError(*value)
            self._idle.append(worker)
            if task is None:
                self._check_model(*value)
            elif kind == "shard":
                yield task, ShardError(*value)
            else:
                self._longest = max(self._longest, now - begun)
                yield task, value
        limit = max(self._patience, 5 * self._longest)
        # Without a shard that was finished nobody knows how long one takes.
        for ref, (worker, task, begun) in list(self._running.items()):
            if task is not None and self._longest and now - begun > limit:
                del self._running[ref]
                ray.kill(worker)
                yield from self._replaced(task)

    def _replaced(self, task: Task | None) -> Iterator[tuple[Task, None]]:
        if task is None:
            self._deaths += 1
            if self._deaths >= _ATTEMPTS:
                raise UserError(
                    f"workers: {self._deaths} died before they had loaded the model, expected memory for it"
                )
        self._add_worker()
        if task is not None:
            yield task, None

    def _check_model(self, model: str, embedding_size: int) -> None:
        if self.model and model != self.model:
            raise UserError(
                f"model: found {model[:12]}… on a worker, expected {self.model[:12]}…, as on others: files differ"
            )
        self.model, self.embedding_size = model, embedding_size


@contextlib.contextmanager
def on_ray(
    load: Callable[[], Embedder],
    folder: str | os.PathLike,
    settings: Settings,
    *,
    workers: int,
    address: str | None = None,
    threads: int = 1,
    patience: float = 120.0,
) -> Iterator[RayEngine]:
    """A context with a `RayEngine`; at its end the workers have ended, and a Ray that it started.

    Args:
      load: gives the model, in each worker; it must pickle.
      folder, settings: of the `Job`.
      workers: how many.
      address: of a cluster, `host:port`, whose machines see the files under the same names; None starts Ray on
        127.0.0.1, without a dashboard, with a token of its own that every connection must show.
      threads: of each worker's model.
      patience: see `RayEngine`.

    Raises:
      UserError: Ray is not installed, there is no such cluster, or the model cannot be loaded.
    """
    if importlib.util.find_spec("ray") is None:
        raise ArgumentError("workers: Ray is not installed: pip install 'bert-flow-tf[scale]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is not None:
        _require_answer(address)
    temporary = None
    options: dict[str, Any] = {"address": address}
    if address is None:
        # Some of Ray's ports listen on all interfaces, whatever address it is given.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        temporary = tempfile.mkdtemp(prefix="bert_flow_ray_")
        options = {
            "num_cpus": workers * threads,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": temporary,
            "object_store_memory": _OBJECT_STORE,
        }
    import ray

    # The workers' place, also of what they leave when they are killed.
    make_directory(folder)
    try:
        ray.init(**options, logging_level=logging.ERROR, log_to_driver=False)
        actor = ray.remote(num_cpus=threads, max_restarts=0)(_Worker)
        arguments = load, os.fspath(folder), settings, threads, os.getcwd()
        yield RayEngine(lambda: actor.remote(*arguments), workers, patience)
    finally:
        ray.shutdown()
        sweep(pathlib.Path(folder))
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _require_answer(address: str) -> None:
    """Raises `ArgumentError` unless something listens at `host:port`, for which Ray would wait minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise ArgumentError(f"ray: found no cluster at {address} ({error}), expected host:port of one") from error
