"""`python -m bert_flow_tf.recipe`."""

import sys

from bert_flow_tf.recipe.run import ended_by_sigterm, main

with ended_by_sigterm():
    sys.exit(main())
