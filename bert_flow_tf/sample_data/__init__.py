"""Sample data in GLUE's column layout, made by `tools/sample_data` in the repository."""

import pathlib


def sample_glue_dir() -> str:
    """Path of the sample's GLUE folder (STS-B, MNLI and SNLI), for `--glue_dir`, `GLUE_DIR` or `--glue_path`."""
    return str(pathlib.Path(__file__).parent / "glue")
