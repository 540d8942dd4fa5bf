"""The generator of the sample data in `bert_flow_tf/sample_data/glue`; it is not part of the package."""
