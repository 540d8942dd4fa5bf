"""`python -m bert_flow_tf.recipe`."""

import sys

from bert_flow_tf.recipe.run import main

sys.exit(main())
