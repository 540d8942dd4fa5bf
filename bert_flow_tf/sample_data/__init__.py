"""Sample data in GLUE's column layout; README.md beside this file says how it was made."""

import pathlib


def sample_glue_dir() -> str:
    """Path of the sample's GLUE folder (STS-B, MNLI and SNLI), for `--glue_dir`, `GLUE_DIR` or `--glue_path`."""
    return str(pathlib.Path(__file__).parent / "glue")


def sample_sentences() -> list[str]:
    """Return the 1,600 sentences of the sample's STS-B train split, to learn a flow on."""
    lines = pathlib.Path(sample_glue_dir(), "STS-B", "train.tsv").read_text(encoding="utf-8").splitlines()
    return [sentence for line in lines[1:] for sentence in line.split("\t")[7:9]]
