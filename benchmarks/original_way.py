"""`run_siamese` in the original's way: in every step of a flow the SavedModel runs, with dropout, on that step's pairs.

python -m benchmarks.original_way FLAGS OF run_siamese
"""

import sys
from unittest import mock

from bert_flow_tf import run_siamese

if __name__ == "__main__":
    with mock.patch("bert_flow_tf.encoder.layer.bert_of", lambda *arguments: None):
        sys.exit(run_siamese.run_command(sys.argv[1:]))
