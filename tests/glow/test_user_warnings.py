"""A warning names the user's own line."""

import pathlib
import warnings

import numpy as np
from sklearn.pipeline import make_pipeline

from glow import FlowCalibrator


def test_a_warning_names_the_line_of_the_user():
    few = np.random.default_rng(0).normal(size=(8, 3))
    calibrators = [FlowCalibrator(epochs=0.5) for _ in range(3)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calibrators[0].set_params(epochs=1).fit(few)
        calibrators[1].partial_fit(few)
        make_pipeline(calibrators[2].set_params(epochs=1)).fit(few)
    # TensorFlow warns of its own deprecations.
    ours = [one for one in caught if one.category is UserWarning]
    assert len(ours) >= 3
    assert {pathlib.Path(one.filename).name for one in ours} == {"test_user_warnings.py"}
