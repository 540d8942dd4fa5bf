"""Several CPU devices, for tests of replicas."""

import pytest
import tensorflow as tf

# Only possible before TensorFlow has started its devices, so not in the fixture.
_CPU = tf.config.list_physical_devices("CPU")[0]
if tf.config.get_logical_device_configuration(_CPU) is None:
    tf.config.set_logical_device_configuration(_CPU, [tf.config.LogicalDeviceConfiguration()] * 4)


@pytest.fixture(scope="session")
def two_cpus():
    """Names of two logical CPU devices."""
    return ["/cpu:0", "/cpu:1"]
