"""`python -m bert_flow_tf.recipe`."""

from bert_flow_tf.recipe.run import main

raise SystemExit(main())
