"""An encoder whose matrices are rounded to bfloat16, and nothing else of it."""

import numpy as np
import tensorflow as tf

from tests.bert_flow_tf.encoder.test_fused_bert import INPUTS


def test_matrices_are_rounded_and_biases_and_norms_are_not(encoder):
    embeddings = []
    for multiply_in_bfloat16, dtype in ((False, tf.float32), (True, tf.bfloat16)):
        rounded = encoder.rounded_to_bfloat16(multiply_in_bfloat16)
        for name, variable in encoder.variables_by_name.items():
            found = rounded.variables_by_name[name]
            if name.endswith(("kernel", "embeddings")):
                assert found.dtype == dtype
                expected = tf.cast(tf.cast(variable, tf.bfloat16), tf.float32)
                np.testing.assert_array_equal(tf.cast(found, tf.float32), expected)
            else:
                assert found is variable
        embeddings.append(rounded.embed(INPUTS))
        assert 0 < np.abs(embeddings[-1] - encoder(INPUTS)).max() < 0.03
    # Rounding what is multiplied, too, costs more than rounding the weights.
    assert not np.array_equal(*embeddings)
