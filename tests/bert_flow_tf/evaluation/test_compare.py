"""A comparison of calibrations."""

import numpy as np

from bert_flow_tf.evaluation.calibration import Split, compare_calibrations
from glow import FlowCalibrator
from tests.refusals import user_error


def compare(methods, *, width=24, seeds=(), fit_rows=None, **flow_options):
    """Compare on 30 pairs with labels 0 and 1."""
    rng = np.random.default_rng(0)
    fitted, dev, test = (rng.normal(size=(60, width)).astype(np.float32) for _ in range(3))
    dev, test = (Split(name, u, rng.uniform(size=30) > 0.5, "auc") for name, u in (("dev", dev), ("test", test)))
    fit_rows = fitted if fit_rows is None else fit_rows
    return compare_calibrations(
        methods, fit_rows, dev, test, seeds, lambda seed: FlowCalibrator(seed=seed, **flow_options).fit(fit_rows)
    )


def test_labels_are_scored_by_auc_alone():
    results = compare(["natsv", "none"])
    assert [row.method for row in results] == ["natsv", "none"]
    assert all(row.by_metric.keys() == {"auc"} for row in results)


def test_options_and_embeddings_that_do_not_fit_are_named():
    with user_error("flow: learning_rate: found -1"):
        compare(["flow"], seeds=[1], learning_rate=-1)
    with user_error("whitening-25: n_components=25"):
        compare(["whitening-25"])
    with user_error("embeddings: found NaN in row 9, column 7"):
        compare(["none"], fit_rows=np.where(np.arange(240).reshape(10, 24) == 9 * 24 + 7, np.nan, 1))
