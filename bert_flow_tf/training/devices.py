"""Set up the devices, workers and seeds of a run."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator

import tensorflow as tf
import tf_keras

from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.training.cluster import Cluster, LostWorker


def configure_devices(
    seed: int | None,
    batch_size: int | None = None,
    cluster: Cluster | None = None,
    *,
    num_logical_cpus: int = 0,
    use_xla: bool = False,
) -> tf.distribute.Strategy:
    """Return the run's strategy: all GPUs, virtual CPUs, or one CPU.

    Call it once, before TensorFlow has used a device. A cluster of several workers gives a
    `MultiWorkerMirroredStrategy`, which waits for all of them; each has one replica, on its GPU or
    CPU.

    Args:
      seed: TensorFlow's seed; None if nothing depends on it.
      batch_size: pairs per step, over all replicas; None if nothing is trained.

    Raises:
      UserError: the replicas cannot share the batch equally, or the workers cannot connect.
      RuntimeError: TensorFlow has already set up another number of devices.
    """
    gpus = tf.config.list_physical_devices("GPU")
    wanted = num_logical_cpus
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    cpu = tf.config.list_physical_devices("CPU")[0]
    if wanted > 1 and len(tf.config.get_logical_device_configuration(cpu) or ()) < wanted:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * wanted
        )
    tf.config.optimizer.set_jit(use_xla)
    if seed is not None:
        tf_keras.utils.set_random_seed(seed)
    if cluster is not None and cluster.count > 1:
        if wanted or len(gpus) > 1:
            raise UserError(
                f"TF_CONFIG: found {wanted or len(gpus)} devices, expected one for each worker"
            )
        try:
            return tf.distribute.MultiWorkerMirroredStrategy()
        except (tf.errors.OpError, ValueError) as error:
            raise UserError(
                f"TF_CONFIG: the workers cannot connect: {str(error).splitlines()[0]}"
            ) from error
    kind, count = ("cpu", wanted) if wanted else ("gpu", len(gpus)) if gpus else ("cpu", 1)
    if batch_size is not None and batch_size % count:
        raise ArgumentError(
            f"train_batch_size: found {batch_size}, expected a multiple of the {count} replicas"
        )
    if count == 1 and not (wanted and gpus):
        # Do not mirror a single replica, because closing a mirrored iterator may take a minute: it
        # waits for a thread that may sleep for as long as the iterator has existed.
        return tf.distribute.get_strategy()
    return _strategy(kind, count)


@functools.cache
def _strategy(kind: str, count: int) -> tf.distribute.Strategy:
    """Return one cached strategy, because strategies cannot share variables."""
    # On CPUs, TensorFlow's collective operations would fix the number of replicas for the rest of
    # the process.
    reduction = tf.distribute.ReductionToOneDevice() if kind == "cpu" and count > 1 else None
    return tf.distribute.MirroredStrategy([f"/{kind}:{i}" for i in range(count)], reduction)


@dataclasses.dataclass(frozen=True)
class Workers:
    """The workers that train a run, as one of them sees them."""

    cluster: Cluster
    strategy: tf.distribute.Strategy

    @property
    def is_chief(self) -> bool:
        return self.cluster.is_chief

    def from_chief(self, value: int = 0) -> int:
        """Return the chief's value; all workers must call this."""
        if self.cluster.count == 1:
            return value
        chief_value = tf.constant(value if self.is_chief else 0, tf.int64)
        return int(self.strategy.reduce(tf.distribute.ReduceOp.SUM, chief_value, axis=None))

    @contextlib.contextmanager
    def noticing_lost_worker(self) -> Iterator[None]:
        """Raise `LostWorker` if another worker ends within the block."""
        try:
            yield
        except tf.errors.OpError as error:
            if self.cluster.count == 1:
                raise
            found = f"worker {self.cluster.index}: another worker has ended"
            raise LostWorker(f"{found}; restart all to resume") from error

    def distributed(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        """Return this worker's endless batches as the strategy needs them."""
        if self.cluster.count == 1:
            return batches
        # Without a known cardinality, the workers would ask each other for more data in every step.
        endless = batches.apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        return self.strategy.distribute_datasets_from_function(lambda context: endless)


def replica_sum(value: tf.Tensor) -> tf.Tensor:
    """Return the sum over all replicas."""
    replicas = tf.distribute.get_replica_context()
    return (
        value
        if replicas.num_replicas_in_sync == 1
        else replicas.all_reduce(tf.distribute.ReduceOp.SUM, value)
    )


def for_replicas(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Prefetch batches; let each replica get its part of every batch."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    # There is nothing to tune, and the tuning thread would delay the iterator's end, see
    # `configure_devices`.
    options.autotune.enabled = False
    return batches.prefetch(2).with_options(options)
