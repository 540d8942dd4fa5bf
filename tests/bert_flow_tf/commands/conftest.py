"""A small task that the commands are tested on, of words that the tiny BERT knows."""

import numpy as np
import pytest

from bert_flow_tf.data.tasks import read_split

PAIRS = {"train": 20, "dev": 14, "test": 16}
_HEADER = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"


@pytest.fixture(scope="session")
def small_glue_dir(tmp_path_factory):
    """Folder with STS-B in GLUE's layout: pairs of a sentence and the same with some words replaced; gold at random."""
    root = tmp_path_factory.mktemp("glue")
    (root / "STS-B").mkdir()
    rng = np.random.default_rng(7)
    for split, n in PAIRS.items():
        rows = []
        for _ in range(n):
            words = [f"w{i}" for i in rng.integers(25, size=rng.integers(2, 7))]
            others = [word if rng.random() < 0.6 else f"w{rng.integers(25)}" for word in words]
            rows.append((" ".join(words), " ".join(others), f"{rng.uniform(0, 5):.3f}"))
        with_score = split != "test"
        lines = [_HEADER + ("\tscore" if with_score else "")]
        lines += ["\t".join([str(i), *["-"] * 6, *row[: 3 if with_score else 2]]) for i, row in enumerate(rows)]
        (root / "STS-B" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
        if split == "test":
            lines = ["\t".join(["main", "-", "-", str(i), score, a, b]) for i, (a, b, score) in enumerate(rows)]
            (root / "STS-B" / "sts-test.csv").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="session")
def small_splits(small_glue_dir):
    """dict of split -> `Examples` of that task."""
    return {split: read_split("sts-b", small_glue_dir / "STS-B", split) for split in PAIRS}
