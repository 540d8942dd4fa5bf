"""A warning of the calibrations names the line that called the library."""

import pathlib
import warnings

import numpy as np

from bert_flow_tf import BertFlow, calibrate, compare
from tests.bert_flow_tf.small_runs import TINY_WORDS

_FEW = [f"{TINY_WORDS[i]} {TINY_WORDS[j]}" for i in range(10) for j in range(10, 17)]


def _codes(texts):
    return np.random.default_rng(0).normal(size=[len(texts), 3])


def test_each_warning_names_the_callers_file(tiny_encoder_dir):
    model = BertFlow.from_hub(tiny_encoder_dir, pooling="avg", max_seq_length=8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(_FEW, method="whitening", dev_fraction=0.0)
        calibrate(_codes, _FEW, epochs=1, batch_size=4, dev_fraction=0.0)
        compare(_codes, _FEW, ["whitening", "natsv-3"])
    ours = [one for one in caught if one.category is UserWarning]
    said = " ".join(str(one.message) for one in ours)
    assert all(words in said for words in ("whitening", "steps", "natsv-3")), said
    assert {pathlib.Path(one.filename).name for one in ours} == {"test_warnings.py"}
