"""Settings check their values once, wherever they come from."""

import msgspec
import numpy as np

from bert_flow_tf.calibration.settings import FitSettings
from tests.refusals import user_error


def test_numbers_of_numpy_are_numbers():
    given = {"batch_size": np.int64(32), "learning_rate": np.float32(0.5), "seed": np.uint32(7)}
    settings = FitSettings(**given)
    assert settings == FitSettings(batch_size=32, learning_rate=0.5, seed=7)
    # Records of them are JSON.
    assert b'"batch_size":32' in msgspec.json.encode(settings)
    with user_error("batch_size: found 0, expected `int` >= 1"):
        FitSettings(batch_size=np.int64(0))
    with user_error("learning_rate: found nan, expected a finite number"):
        FitSettings(learning_rate=np.float32("nan"))
