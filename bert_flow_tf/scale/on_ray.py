"""Shards to workers that Ray starts, here or in a cluster: each loads the model once, and embeds one at a time."""

import collections
import contextlib
import importlib.util
import logging
import math
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bert_flow_tf.errors import ArgumentError, UserError, pip_install
from bert_flow_tf.scale.bulk import Embedder, Outcome, Part, Settings, ShardError, Task, embed_if_missing
from bert_flow_tf.scale.local_workers import thread_variables
from bert_flow_tf.scale.shards import Shard

# How often a shard is tried, and how often all workers may die before one has loaded the model: with a node, all do.
_ATTEMPTS = 3
# A shard whose worker was taken for stalled may be a longer one.
_MORE_PATIENCE = 4
# Bytes; Ray would take a third of the memory for what is none of its objects.
_OBJECT_STORE = 100 << 20


class _Worker:
    """The actor; it returns errors, which then need not be pickled, and whatever it raises is a bug."""

    def __init__(self, load: Callable[[], Embedder], folder: str, settings: Settings, threads: int, cwd: str) -> None:
        os.chdir(cwd)
        # Before TensorFlow is loaded.
        os.environ |= thread_variables(threads)
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
            return "part", embed_if_missing(self._model, shard, self._folder, self._settings, known)
        except ShardError as error:
            return "shard", (str(error), error.arguments)
        except UserError as error:
            return "error", (str(error), error.arguments)


class RayEngine:
    """The engine of a `Job` whose workers are actors; `on_ray` makes one.

    A worker that dies, or takes for a shard five times as long as any shard took so far and more than `patience`
    seconds, is replaced, and its shard goes to the next one that is free, which has four times as long; after three
    times it cannot be embedded.

    Attributes:
      model, embedding_size: fingerprint and width of the workers' model, which all must have.
    """

    def __init__(self, start: Callable[[], Any], workers: int, patience: float) -> None:
        self._start, self._workers, self._patience = start, workers, patience
        self._longest = 0.0
        self._deaths = 0
        self._idle: list[Any] = []
        # What is awaited of which worker, for which task, since when.
        self._running: dict[Any, tuple[Any, Task | None, float]] = {}
        self._again: collections.deque[Task] = collections.deque()
        self._failures: collections.Counter[str] = collections.Counter()
        self.model, self.embedding_size = "", 0
        for _ in range(workers):
            self._add_worker()
        while not self.model:
            collections.deque(self._finished(), maxlen=0)

    def __call__(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
        following = iter(tasks)
        while True:
            while self._idle and (task := self._again.popleft() if self._again else next(following, None)):
                worker = self._idle.pop()
                self._running[worker.embed.remote(*task)] = worker, task, time.monotonic()
            # A worker that is idle now has found no task; without one, those that start have not looked yet.
            if self._idle and not any(task for _, task, _ in self._running.values()):
                return
            yield from self._finished()

    def _add_worker(self) -> None:
        worker = self._start()
        self._running[worker.identity.remote()] = worker, None, time.monotonic()

    def _finished(self) -> Iterator[Outcome]:
        """Yields outcomes, after a second at most; a task whose worker died is put aside, to be tried again."""
        import ray

        ready, _ = ray.wait(list(self._running), timeout=1)
        now = time.monotonic()
        for ref in ready:
            worker, task, begun = self._running.pop(ref)
            try:
                kind, value = ray.get(ref)
            except ray.exceptions.RayTaskError:
                # A bug.
                raise
            except ray.exceptions.RayError as error:
                # It died, with its machine or without, was killed for its memory, or cannot be reached.
                yield from self._replaced(worker, task, str(error).partition("\n")[0])
                continue
            if kind == "error":
                raise UserError(*value)
            self._idle.append(worker)
            if task is None:
                self._deaths = 0
                self._check_model(*value)
            elif kind == "shard":
                yield task[0], ShardError(*value)
            else:
                if value is not None:
                    self._longest = max(self._longest, now - begun)
                yield task[0], value
        # Without a shard that was embedded nobody knows how long one takes.
        limit = max(self._patience, 5 * self._longest) if self._longest else math.inf
        for ref, (worker, task, begun) in list(self._running.items()):
            if task is not None and now - begun > limit * _MORE_PATIENCE ** self._failures[task[0].name]:
                del self._running[ref]
                yield from self._replaced(worker, task, "stalled")

    def _replaced(self, worker: Any, task: Task | None, reason: str) -> Iterator[Outcome]:
        import ray

        ray.kill(worker)
        self._add_worker()
        if task is None:
            self._deaths += 1
            if self._deaths >= _ATTEMPTS * self._workers:
                raise UserError(
                    f"workers: {self._deaths} died before they had loaded the model, expected memory for it ({reason})"
                )
            return
        shard, _ = task
        self._failures[shard.name] += 1
        if self._failures[shard.name] < _ATTEMPTS:
            self._again.append(task)
        else:
            yield shard, ShardError(f"{shard.name}: its worker died or stalled {_ATTEMPTS} times ({reason})")

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
    with connected(address, cpus=workers * threads):
        import ray

        try:
            # The workers' place, also of what they leave when they are killed.
            os.makedirs(folder, exist_ok=True)
            actor = ray.remote(num_cpus=threads, max_restarts=0)(_Worker)
            arguments = load, os.fspath(folder), settings, threads, os.getcwd()
            yield RayEngine(lambda: actor.remote(*arguments), workers, patience)
        finally:
            # Ends the workers, which else would still write.
            ray.shutdown()


@contextlib.contextmanager
def connected(address: str | None, *, cpus: int) -> Iterator[None]:
    """A context in which Ray can be used.

    Args:
      address: as of `on_ray`.
      cpus: of a Ray that is started here.

    Raises:
      UserError: Ray is not installed, does not start here, or there is no such cluster.
    """
    if importlib.util.find_spec("ray") is None:
        argument = "workers" if address is None else "ray"
        raise ArgumentError(f"{argument}: Ray is not installed: {pip_install('scale')}")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's default is 15, with which workers get next to nothing of a machine that others use.
    os.environ.setdefault("RAY_worker_niceness", "0")
    temporary = None
    options: dict[str, Any] = {"address": address}
    if address is None:
        # Some of Ray's ports listen on all interfaces, whatever address it is given.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        temporary = tempfile.mkdtemp(prefix="bert_flow_ray_")
        options = {
            "num_cpus": cpus,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": temporary,
            "object_store_memory": _OBJECT_STORE,
        }
    else:
        # Where no cluster answers, Ray tries 20 times for 40 seconds each by default: here once, for 18.
        os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "1")
        os.environ.setdefault("RAY_py_gcs_connect_timeout_s", "8")
    import ray

    try:
        try:
            with _without_stderr():
                ray.init(**options, logging_level=logging.ERROR, log_to_driver=False)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            reason = str(error).partition("\n")[0]
            if address is None:
                raise ArgumentError(
                    f"workers: found that Ray does not start here ({reason}), expected it to"
                ) from error
            raise ArgumentError(
                f"ray: found no cluster at {address} ({reason}), expected host:port of one (and its RAY_AUTH_MODE)"
            ) from error
        yield
    finally:
        ray.shutdown()
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    """A context in which native code says nothing there: Ray's does so before it raises."""
    stderr = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
