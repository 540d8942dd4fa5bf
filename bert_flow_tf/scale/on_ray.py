"""Use Ray: actors that embed shards, and Ray Train for training."""

import contextlib
import functools
import logging
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from absl import logging as absl_logging

from bert_flow_tf.common.code_files import VARIABLE, import_inherited_code
from bert_flow_tf.common.errors import ArgumentError, UserError, check_installed, show_progress
from bert_flow_tf.common.reading import AnyPath
from bert_flow_tf.scale.settings import ShardSettings
from bert_flow_tf.scale.shards import Identity, LocalEngine, Shard, WrittenPart

if TYPE_CHECKING:
    from ray.train.tensorflow import TensorflowTrainer
    from ray.util.queue import Queue

    from bert_flow_tf.vectors.sentence_model import SentenceModel

_RETRIES = 3  # retries of a shard whose worker died
# By default, Ray's workers have a niceness of 15. The timeout ends the command if the cluster is
# lost. A shard up to these sizes is sent in the request, because the loss of a node that stores it
# would silently end this process. When Ray ends, it would print fifty lines about its state on
# stdout.
_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "Raylet is terminated|The node with node id",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "30",
    "RAY_max_direct_call_object_size": str(256 << 20),
    "RAY_task_rpc_inlined_bytes_limit": str(256 << 20),
}
# An address without a cluster is an error after these seconds; a local Ray needs the longer
# defaults.
_ADDRESS_VARIABLES = {"RAY_gcs_server_port_wait_time_s": "1", "RAY_py_gcs_connect_timeout_s": "8"}


class _Worker:
    """An actor that loads the model at its first call."""

    def __init__(
        self,
        load: "Callable[[], SentenceModel]",
        folder: AnyPath,
        settings: ShardSettings,
        cwd: str,
    ) -> None:
        os.chdir(cwd)
        self._load = functools.cache(lambda: LocalEngine(load(), folder, settings))

    def identity(self) -> Identity:
        return self._load().identity()

    def embed(self, shard: Shard, expected: Identity) -> WrittenPart:
        found = self.identity()
        if found != expected:
            raise UserError(
                f"model: found {found.fingerprint} on a worker, expected {expected.fingerprint}, "
                "as on the first worker"
            )
        return next(self._load().embed([shard]))


class RayEngine:
    """Embed shards in Ray actors, which Ray restarts after a failure.

    Args:
      load: picklable function that returns the model in each worker.
      threads: threads of each actor.
    """

    def __init__(
        self,
        load: "Callable[[], SentenceModel]",
        folder: AnyPath,
        settings: ShardSettings,
        *,
        workers: int,
        threads: int,
    ) -> None:
        import ray

        actor: Any = ray.remote(num_cpus=threads, max_restarts=-1, max_task_retries=_RETRIES)(
            _Worker
        )
        self._actors = [
            actor.remote(load, os.path.abspath(folder), settings, os.getcwd())
            for _ in range(workers)
        ]
        self._identity: Identity = ray.get(self._actors[0].identity.remote())

    def identity(self) -> Identity:
        return self._identity

    def embed(self, shards: Iterable[Shard]) -> Iterator[WrittenPart]:
        from ray.util import ActorPool

        pool = ActorPool(self._actors)
        for shard in shards:
            if not pool.has_free():
                yield pool.get_next_unordered()
            pool.submit(lambda actor, one: actor.embed.remote(one, self._identity), shard)
        while pool.has_next():
            yield pool.get_next_unordered()


def train_on_ray(
    run: Callable[[], None],
    lost: type[UserError],
    *,
    workers: int,
    threads: int,
    address: str | None,
    restarts: int,
) -> None:
    """Call `run()` in workers that train together under Ray Train.

    If a worker dies or fails, Ray Train restarts all, at most `restarts` times, and the run
    resumes. A `UserError` of `run` ends the training, except the class `lost`, which reports a lost
    worker. The workers' output goes to stderr.

    Raises:
      UserError: `run` raised it; Ray or the cluster is missing; or there were too many restarts.
    """
    with (
        connected(address, workers, threads, log_to_driver=True),
        tempfile.TemporaryDirectory() as folder,
    ):
        from ray.util.queue import Queue

        mistakes = Queue(actor_options={"num_cpus": 0})
        given = {"run": run, "folder": os.getcwd(), "mistakes": mistakes, "lost": lost}
        trainer = _trainer(given, folder, workers=workers, threads=threads, restarts=restarts)
        _fit(trainer, mistakes, restarts)


def _trainer(
    given: Mapping[str, Any], folder: str, *, workers: int, threads: int, restarts: int
) -> "TensorflowTrainer":
    """Return a trainer that calls `_train(given)` in each worker."""
    import ray
    from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from ray.train.tensorflow import TensorflowTrainer

    return TensorflowTrainer(
        _train,
        train_loop_config=dict(given),
        scaling_config=ScalingConfig(
            num_workers=workers,
            use_gpu="GPU" in ray.cluster_resources(),
            resources_per_worker={"CPU": threads},
        ),
        # The types of ray.train are those of an older version.
        run_config=RunConfig(  # type: ignore[call-arg]
            # A temporary folder is enough, because the run has its own checkpoints.
            storage_path=folder,
            failure_config=FailureConfig(max_failures=restarts),
            logging_config=LoggingConfig(log_level="CRITICAL"),
        ),
    )


def _fit(trainer: "TensorflowTrainer", mistakes: "Queue", restarts: int) -> None:
    """Train; raise `UserError` for a worker's mistake or too many restarts."""
    from ray.train import TrainingFailedError

    try:
        trainer.fit()
    except SystemExit as end:
        # Ray Train handles SIGINT by ending the process with status 0.
        raise KeyboardInterrupt from end
    except TrainingFailedError as error:
        if mistakes.empty():
            reason = str(error).strip().rpartition("\n")[2]
            raise UserError(
                f"training failed after {restarts} restarts ({reason}); rerun to resume"
            ) from error
    if not mistakes.empty():
        raise mistakes.get()


def _train(given: Mapping[str, Any]) -> None:
    os.chdir(given["folder"])
    absl_logging.use_absl_handler()
    show_progress(of_original=True)
    # Do not run again after a user's mistake, which a restart cannot correct.
    if given["mistakes"].empty():
        try:
            given["run"]()
        except UserError as error:
            if not isinstance(error, given["lost"]):
                given["mistakes"].put(error)
            raise


@contextlib.contextmanager
def connected(
    address: str | None, workers: int, threads: int, *, log_to_driver: bool = False
) -> Iterator[None]:
    """Connect to a Ray cluster, or start Ray; disconnect after the block.

    Args:
      address: the cluster's `host:port`; its machines must have the files at the same paths. None
        starts Ray here.
      log_to_driver: True to show the workers' output.

    Raises:
      UserError: Ray is not installed, does not start, or ends early; or the cluster is missing or
        too small.
    """
    argument = "workers" if address is None else "ray"
    check_installed("ray", "scale", argument, ArgumentError)
    os.environ |= _VARIABLES | (_ADDRESS_VARIABLES if address else {}) | os.environ
    with tempfile.TemporaryDirectory(
        prefix="bert_flow_ray_", ignore_cleanup_errors=True
    ) as temporary:
        if address is None:
            # The token protects Ray's ports, because some listen on all interfaces.
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        import ray

        start = functools.partial(
            ray.init,
            logging_level=logging.ERROR,
            logging_config=ray.LoggingConfig(log_level="ERROR"),
            runtime_env={
                "env_vars": _worker_variables(threads),
                "worker_process_setup_hook": import_inherited_code,
            },
            log_to_driver=log_to_driver,
        )
        try:
            if address is None:
                start(
                    num_cpus=workers * threads,
                    include_dashboard=False,
                    # The default would reserve a third of the memory.
                    object_store_memory=200 << 20,
                    _temp_dir=temporary,
                )
            else:
                start(address=address)
        except Exception as error:  # Ray raises this class if it does not start in time.
            where = "here" if address is None else f"at {address}, see its RAY_AUTH_MODE"
            reason = str(error).partition("\n")[0]
            raise ArgumentError(f"{argument}: Ray cannot be reached {where} ({reason})") from error
        try:
            with _failures_as_user_errors():
                _check_cpus(workers, threads)
                yield
        finally:
            # Otherwise, workers would continue to write.
            ray.shutdown()


def _worker_variables(threads: int) -> dict[str, str]:
    """Return the workers' environment variables for TensorFlow."""
    variables = {f"TF_NUM_{kind}_THREADS": str(threads) for kind in ("INTRAOP", "INTEROP")}
    passed_on = ("TF_CPP_MIN_LOG_LEVEL", "TF_XLA_FLAGS", "TF_USE_LEGACY_KERAS", VARIABLE)
    return variables | {name: os.environ[name] for name in passed_on if name in os.environ}


def _check_cpus(workers: int, threads: int) -> None:
    """Raise `ArgumentError` if the cluster has too few CPUs."""
    import ray

    if (cpus := int(ray.cluster_resources().get("CPU", 0))) < workers * threads:
        raise ArgumentError(
            f"workers: found {workers} of {threads} threads, but Ray has {cpus} CPUs"
        )


@contextlib.contextmanager
def _failures_as_user_errors() -> Iterator[None]:
    """Raise `UserError` for a worker's mistake or a lost cluster."""
    import ray

    try:
        yield
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, UserError) else error from None
    except ray.exceptions.RayError as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"ray: ended or lost its workers ({reason}); run the same command to resume"
        ) from error
