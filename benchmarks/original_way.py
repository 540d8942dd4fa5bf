"""`run_siamese` in the original's way: in every step of a flow the SavedModel runs, with dropout, on that step's pairs.

python -m benchmarks.original_way FLAGS OF run_siamese
"""

import sys
from unittest import mock

from bert_flow_tf import run_siamese

if __name__ == "__main__":
    # Nothing is proved, and so the fused form never takes the SavedModel's place in training.
    with mock.patch("bert_flow_tf.encoder.layer.proved_before", lambda graph, prove: False):
        sys.exit(run_siamese.run_command(sys.argv[1:]))
