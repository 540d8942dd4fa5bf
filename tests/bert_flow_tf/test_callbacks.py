"""What happens between the steps of training."""

import pytest
import tensorflow as tf

from bert_flow_tf import callbacks
from bert_flow_tf.errors import UserError


@pytest.mark.differs("not finite")
def test_a_step_with_a_loss_that_is_not_finite_is_not_saved(tmp_path):
    step = tf.Variable(4, dtype=tf.int64)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(step=step), str(tmp_path), max_to_keep=1)
    callback = callbacks.StopIfNotFinite(step, manager)
    callback.on_train_batch_end(0, {"loss": 1.0})
    with pytest.raises(UserError, match="step 6: found flow_loss nan, expected a finite number"):
        callback.on_train_batch_end(1, {"loss": 1.0, "flow_loss": float("nan")})
