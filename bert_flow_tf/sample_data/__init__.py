"""Sample data in GLUE's column layout, written by our own generator (`bert_flow_tf.sample_data.generate`)."""

import pathlib


def sample_glue_dir() -> str:
    """Path of the sample's GLUE folder: STS-B, MNLI and SNLI, as `--data_dir`'s parent or `--glue_path`."""
    return str(pathlib.Path(__file__).parent / "glue")
