"""The devices that a run computes on, and TensorFlow's seeds."""

import functools

import tensorflow as tf
import tf_keras

from bert_flow_tf.errors import ArgumentError, LostWorkerError, UserError, native_messages_held_back
from bert_flow_tf.runs.cluster import VARIABLE, Cluster
from bert_flow_tf.runs.settings import DeviceSettings


def configure_devices(
    devices: DeviceSettings, seed: int | None, batch_size: int | None = None, cluster: Cluster | None = None
) -> tf.distribute.Strategy:
    """Strategy over all GPUs, `num_logical_cpus` virtual CPU devices, or the one CPU; sets TensorFlow's seeds.

    To be called once, before TensorFlow has touched a device; `seed` is None where nothing depends on those of the
    process, `batch_size` where nothing is trained. With a cluster it waits until all of its workers have called it,
    each of which has one replica, on its GPU or CPU.

    Raises:
      UserError: TensorFlow has already set up another number of devices, the replicas cannot share a batch, or this
        worker cannot listen at its address or join the others.
    """
    gpus = tf.config.list_physical_devices("GPU")
    wanted = devices.num_logical_cpus
    if cluster is not None and wanted:
        raise ArgumentError(f"num_logical_cpus: found {wanted} with a cluster in {VARIABLE}, expected 0")
    if cluster is not None and len(gpus) > 1:
        raise UserError(
            f"{cluster.worker(cluster.index)}: found {len(gpus)} GPUs, expected at most one (start a worker for each "
            "and name its GPU in CUDA_VISIBLE_DEVICES)"
        )
    try:
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        cpu = tf.config.list_physical_devices("CPU")[0]
        if wanted > 1 and len(tf.config.get_logical_device_configuration(cpu) or ()) < wanted:
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * wanted)
    except RuntimeError as error:
        raise ArgumentError(f"num_logical_cpus: found {wanted} after devices were in use ({error})") from error
    tf.config.optimizer.set_jit(bool(devices.use_xla))
    if seed is not None:
        tf_keras.utils.set_random_seed(seed)
    if cluster is not None:
        return _strategy_of(cluster, batch_size)
    names = [f"/gpu:{i}" for i in range(len(gpus))] or ["/cpu:0"]
    if wanted:
        names = [f"/cpu:{i}" for i in range(wanted)]
    if batch_size is not None and batch_size % len(names):
        raise ArgumentError(f"train_batch_size: found {batch_size}, expected a multiple of the {len(names)} replicas")
    if len(names) == 1 and not (wanted and gpus):
        # TensorFlow's default strategy. A mirrored one of a single replica has an iterator whose end waits for a thread
        # that sleeps for up to as long as the iterator has lived, at most a minute.
        return tf.distribute.get_strategy()
    return _strategy(tuple(names), wanted > 1)


def _strategy_of(cluster: Cluster, batch_size: int | None) -> tf.distribute.Strategy:
    if batch_size is not None and batch_size < len(cluster.addresses):
        raise ArgumentError(
            f"train_batch_size: found {batch_size}, expected at least the {len(cluster.addresses)} workers"
        )
    here = cluster.worker(cluster.index)
    try:
        with native_messages_held_back():
            return tf.distribute.MultiWorkerMirroredStrategy()
    except tf.errors.UnknownError as error:
        raise UserError(f"{VARIABLE}: {here} found its port in use or no such host, expected a free port") from error
    except tf.errors.OpError as error:
        reason = str(error).splitlines()[0]
        raise LostWorkerError(f"{here} cannot join the others ({reason}); start all workers again") from error


@functools.cache
def _strategy(names: tuple[str, ...], on_cpus: bool) -> tf.distribute.Strategy:
    """The strategy of a process over these devices: variables of one are of no use to another."""
    # On CPUs TensorFlow's collective operations tie a process to the first number of replicas that it trains on.
    return tf.distribute.MirroredStrategy(list(names), tf.distribute.ReductionToOneDevice() if on_cpus else None)
