"""Sample data in GLUE's layout; README.md here says how it was made."""

import pathlib


def sample_glue_dir() -> str:
    return str(pathlib.Path(__file__).parent / "glue")


def sample_sentences() -> list[str]:
    """Return the 1,600 sentences of the sample's STS-B train split."""
    lines = pathlib.Path(sample_glue_dir(), "STS-B", "train.tsv").read_text(encoding="utf-8").splitlines()
    return [sentence for line in lines[1:] for sentence in line.split("\t")[7:9]]
