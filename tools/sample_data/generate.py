"""Writes the sample data of the package; from the repository's root:

    python -m tools.sample_data.generate --out bert_flow_tf/sample_data/glue --overwrite

    DIR/STS-B   train.tsv 800, dev.tsv 200, test.tsv 400 pairs, and sts-test.csv with the test part's scores
    DIR/MNLI    train.tsv 720, dev_matched.tsv 90, test_matched.tsv 90 pairs
    DIR/SNLI    train.tsv 360, dev.tsv 90, test.tsv 30 pairs

in the columns of GLUE. ALLNLI trains on 1,200 of the NLI pairs: all but MNLI's dev and test. SNLI's test part is small
because training ignores its labels (see `bert_flow_tf.data.tasks`). No sentence occurs twice.
"""

import os
import pathlib
import random
import sys
from collections.abc import Callable, Sequence

from bert_flow_tf.errors import ArgumentParser, exit_status
from bert_flow_tf.files.atomic import write_atomically
from bert_flow_tf.files.outputs import output_file
from tools.sample_data import inference_pairs, similarity_pairs
from tools.sample_data.lexicon import load

DEFAULT_SEED = 2020

STS_SIZES = {"train": 800, "dev": 200, "test": 400}
MNLI_SIZES = {"train": 720, "dev_matched": 90, "test_matched": 90}
SNLI_SIZES = {"train": 360, "dev": 90, "test": 30}

_STS_COLUMNS = ("index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2")
_PARSES = ("sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse")
_FIVE_LABELS = ("label1", "label2", "label3", "label4", "label5")

Pair = tuple[str, str, str, str]  # domain, sentence, sentence, score or label


def sample_files(seed: int) -> dict[str, str]:
    """The text of every file of the sample, by its path below the GLUE folder; the same for the same seed."""
    rng = random.Random(seed)
    lexicon = load()
    seen: set[str] = set()

    def distinct(make: Callable[[int], Pair], size: int) -> list[Pair]:
        pairs: list[Pair] = []
        while len(pairs) < size:
            pair = make(len(pairs))
            if pair[1] != pair[2] and not seen & set(pair[1:3]):
                seen.update(pair[1:3])
                pairs.append(pair)
        rng.shuffle(pairs)
        return pairs

    files: dict[str, str] = {}
    for split, size in STS_SIZES.items():
        pairs = distinct(lambda index: similarity_pairs.make_pair(lexicon, rng, index), size)
        files[f"STS-B/{split}.tsv"] = _sts_file(pairs, with_scores=split != "test")
        if split == "test":
            files["STS-B/sts-test.csv"] = _sts_gold_file(pairs)
    for folder, sizes, columns in (
        ("MNLI", MNLI_SIZES, ("index", "promptID", "pairID", "genre", *_PARSES)),
        ("SNLI", SNLI_SIZES, ("index", "captionID", "pairID", *_PARSES)),
    ):
        for split, size in sizes.items():
            pairs = distinct(lambda index: inference_pairs.make_pair(lexicon, rng, index), size)
            if split == "test_matched":
                labels: tuple[str, ...] = ()
            else:
                labels = ("label1", "gold_label") if split == "train" else (*_FIVE_LABELS, "gold_label")
            files[f"{folder}/{split}.tsv"] = _nli_file(pairs, columns, labels)
    return files


def write_sample(out: str | os.PathLike[str], seed: int = DEFAULT_SEED, overwrite: bool = False) -> None:
    """Writes the sample's files below the folder `out`.

    Raises:
      UserError: a file of the sample exists and `overwrite` is false, or the folder cannot be written to.
    """
    files = {pathlib.Path(out) / name: text for name, text in sample_files(seed).items()}
    for path in files:
        output_file(path, overwrite=overwrite, flag=f"--out: {path}")
    for path, text in files.items():
        write_atomically(path, text)


def _sts_file(pairs: Sequence[Pair], with_scores: bool) -> str:
    rows: list[tuple[str, ...]] = [(*_STS_COLUMNS, "score") if with_scores else _STS_COLUMNS]
    for index, (domain, a, b, score) in enumerate(pairs):
        row = (str(index), domain, "sample", "none", f"{index:04d}", "none", "none", a, b)
        rows.append((*row, score) if with_scores else row)
    return _table(rows)


def _sts_gold_file(pairs: Sequence[Pair]) -> str:
    return _table(
        [(domain, "sample", "none", f"{index:04d}", score, a, b) for index, (domain, a, b, score) in enumerate(pairs)]
    )


def _nli_file(pairs: Sequence[Pair], columns: tuple[str, ...], labels: tuple[str, ...]) -> str:
    rows = [(*columns, "sentence1", "sentence2", *labels)]
    for index, (domain, premise, hypothesis, label) in enumerate(pairs):
        genre = (domain,) if "genre" in columns else ()
        identifiers = (str(index), str(index), f"{index}{label[0]}")
        rows.append((*identifiers, *genre, "-", "-", "-", "-", premise, hypothesis, *[label] * len(labels)))
    return _table(rows)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


def _run(arguments: Sequence[str] | None) -> None:
    parser = ArgumentParser(prog="python -m tools.sample_data.generate", description="Write the sample data.")
    parser.add_argument("--out", required=True, help="folder for STS-B, MNLI and SNLI")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="seed of every random choice")
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    flags = parser.parse_args(arguments)
    write_sample(flags.out, flags.seed, flags.overwrite)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status of the command line: 0, or 2 after one `error:` line."""
    return exit_status(_run, arguments)


if __name__ == "__main__":
    sys.exit(main())
