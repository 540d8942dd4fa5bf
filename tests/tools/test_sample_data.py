"""The sample data in the package is what its generator writes, and what it promises to be."""

import collections
import pathlib

import numpy as np
import pytest
from rapidfuzz.distance import Levenshtein

from bert_flow_tf.data import tasks
from bert_flow_tf.evaluation import metrics
from bert_flow_tf.sample_data import sample_glue_dir
from tests.refusals import files_below, refused_by
from tools.sample_data import generate

GLUE = pathlib.Path(sample_glue_dir())


@pytest.fixture(scope="module")
def sts():
    """STS-B's splits as a training run reads them."""
    return {split: tasks.read_split("sts-b", GLUE / "STS-B", split) for split in tasks.SPLITS}


def test_the_packages_files_are_the_generators_byte_for_byte():
    found = {str(path.relative_to(GLUE)): path.read_bytes() for path in GLUE.rglob("*") if path.is_file()}
    assert found == {name: text.encode() for name, text in generate.sample_files(generate.DEFAULT_SEED).items()}


def test_files_are_replaced_only_with_overwrite(tmp_path):
    assert generate.main(["--out", str(tmp_path), "--seed", "5"]) == 0
    first = files_below(tmp_path)
    line = refused_by(generate.main, "--out", tmp_path, "--seed", "6", unchanged=tmp_path)
    assert line.startswith(f"--out: {tmp_path}/STS-B/train.tsv: exists, expected a new file, or --overwrite")
    assert generate.main(["--out", str(tmp_path), "--seed", "6", "--overwrite"]) == 0
    second = files_below(tmp_path)
    assert second.keys() == first.keys()
    assert all(text is None or second[path] != text for path, text in first.items())


def test_sts_has_pairs_and_scores_in_the_same_order(sts):
    assert {split: len(pairs) for split, pairs in sts.items()} == {"train": 800, "dev": 200, "test": 400}
    assert not sts["test"].has_labels
    rows = [line.split("\t") for line in tasks.read_lines(GLUE / "STS-B" / "sts-test.csv")]
    assert [row[5] for row in rows] == sts["test"].sentences_a
    assert [row[6] for row in rows] == sts["test"].sentences_b


@pytest.mark.parametrize("split", tasks.SPLITS)
def test_sts_scores_cover_the_whole_scale(split, sts):
    counts, _ = np.histogram(tasks.gold_scores("sts-b", GLUE, split), bins=[0, 1, 2, 3, 4, 5.001])
    n = len(sts[split])
    assert counts.sum() == n
    assert counts.min() >= 0.1 * n and counts.max() <= 0.4 * n


@pytest.mark.parametrize("name", ["MNLI/train", "MNLI/dev_matched", "SNLI/train", "SNLI/dev", "SNLI/test"])
def test_nli_labels_are_balanced_in_every_file(name):
    rows = [line.split("\t") for line in tasks.read_lines(GLUE / f"{name}.tsv")]
    counts = collections.Counter(row[-1] for row in rows[1:])
    assert set(counts) == {"contradiction", "entailment", "neutral"} and len(set(counts.values())) == 1


def test_no_sentence_occurs_twice(sts):
    sts_sentences = [sentence for pairs in sts.values() for sentence in (*pairs.sentences_a, *pairs.sentences_b)]
    assert len(tasks.read_train("allnli", GLUE / "ALLNLI")) == 1200
    nli = tasks.read_train("allnli", GLUE / "ALLNLI", use_full_for_training=True)
    sentences = sts_sentences + nli.sentences_a + nli.sentences_b
    assert len(set(sentences)) == len(sentences) == 2 * (1400 + 1380)


def test_the_demo_encoder_finds_the_score_where_words_alone_do_not(sts, demo_dir):
    from bert_flow_tf import BertFlow

    pairs, gold = sts["test"], tasks.gold_scores("sts-b", GLUE, "test")
    n = len(pairs)
    embeddings = BertFlow.from_hub(demo_dir, pooling="avg").encode(pairs.sentences_a + pairs.sentences_b)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    both = zip(pairs.sentences_a, pairs.sentences_b, strict=True)
    by_words = metrics.spearman([-Levenshtein.normalized_distance(a.split(), b.split()) for a, b in both], gold)
    # The sample promises 0.60; it was 0.79 when the sample was made, and -0.06 by the words alone.
    assert metrics.spearman(np.sum(embeddings[:n] * embeddings[n:], axis=1), gold) >= 0.60
    assert abs(by_words) < 0.3
