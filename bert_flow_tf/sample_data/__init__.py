"""Sample data in GLUE's column layout; README.md beside this file says how it was made."""

import pathlib


def sample_glue_dir() -> str:
    """Path of the sample's GLUE folder (STS-B, MNLI and SNLI), for `--glue_dir`, `GLUE_DIR` or `--glue_path`."""
    return str(pathlib.Path(__file__).parent / "glue")
