"""The devices that a run computes on, and TensorFlow's seeds."""

import tensorflow as tf
import tf_keras

from bert_flow_tf.cpu import bfloat16_units
from bert_flow_tf.errors import UserError


def configure_devices(settings):
    """Strategy over all GPUs, `num_logical_cpus` virtual CPU devices, or the one CPU; sets TensorFlow's seeds.

    To be called once, before TensorFlow has touched a device.

    Raises:
      UserError: the devices exist already in another number.
    """
    gpus = tf.config.list_physical_devices("GPU")
    wanted = settings.num_logical_cpus
    try:
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        cpu = tf.config.list_physical_devices("CPU")[0]
        if wanted > 1 and len(tf.config.get_logical_device_configuration(cpu) or ()) < wanted:
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * wanted)
    except RuntimeError as error:
        raise UserError(f"--num_logical_cpus: found {wanted} after devices were in use ({error})") from error
    tf.config.optimizer.set_jit(bool(settings.use_xla))
    tf_keras.utils.set_random_seed(settings.seed)
    devices = [f"/gpu:{i}" for i in range(len(gpus))] or ["/cpu:0"]
    if wanted:
        devices = [f"/cpu:{i}" for i in range(wanted)]
    replicas = len(devices)
    if settings.do_train and settings.train_batch_size % replicas:
        raise UserError(
            f"--train_batch_size: found {settings.train_batch_size}, expected a multiple of the {replicas} replicas"
        )
    # On CPUs TensorFlow's collective operations tie a process to the first number of replicas that it trains on.
    on_cpus = wanted > 1
    return tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice() if on_cpus else None)


def multiplies_bfloat16():
    """Whether the visible GPUs, or else the CPU, say they have units for products of bfloat16: slow without."""
    gpus = tf.config.get_visible_devices("GPU")
    if gpus:
        details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
        return all(each.get("compute_capability", (0, 0)) >= (8, 0) for each in details)
    return bool(bfloat16_units())
