"""The sentences that are measured on."""

import pathlib

import pytest

from benchmarks import corpus, growth
from benchmarks.flow_run import QUICK_PAIRS, _quick_data
from benchmarks.options import Options
from bert_flow_tf.data.tasks import read_split
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.evaluation.predicted import score_predictions
from bert_flow_tf.sample_data import sample_glue_dir
from tests.bert_flow_tf.sample_pairs import VOCAB


@pytest.fixture(scope="module")
def sentences():
    return corpus.all_sentences(Options(sample_glue_dir()))


def test_both_sentences_of_every_pair_of_every_split(sentences):
    splits = [read_split("STS-B", f"{sample_glue_dir()}/STS-B", split) for split in ("train", "dev", "test")]
    assert len(sentences) == 2 * sum(map(len, splits))
    assert sentences[:2] == [splits[0].sentences_a[0], splits[0].sentences_b[0]]
    assert sentences[-1] == splits[2].sentences_b[-1]
    assert corpus.all_sentences(Options(sample_glue_dir(), quick=True)) == sentences[: 2 * corpus.QUICK_PAIRS]


def test_distinct_sentences_differ_in_their_word_pieces():
    tokenizer = Tokenizer(VOCAB, do_lower_case=True)
    sentences = ["W1 w2", "w1 w3", "w1  W2", "w1 w3", "w1 w2 w4"]
    assert corpus.distinct_sentences(sentences, tokenizer, 64) == ["W1 w2", "w1 w3", "w1 w2 w4"]
    # Two word pieces between [CLS] and [SEP].
    assert corpus.distinct_sentences(sentences, tokenizer, 4) == ["W1 w2", "w1 w3"]


def test_evenly_takes_from_the_beginning_to_the_end():
    assert corpus.evenly(list(range(10)), 4) == [0, 2, 5, 7]
    assert corpus.evenly([1, 2], 4) == [1, 2]


def test_made_sentences_are_all_different_and_as_long_as_the_corpus(sentences):
    made = growth.different_sentences(sentences, 5000, seed=1)
    assert len({sentence.lower() for sentence in made}) == 5000
    words, made_words = ([len(s.split()) for s in chosen] for chosen in (sentences, made))
    assert set(made_words) <= set(words)
    # Of 5,000 draws, the mean is within 4 standard errors.
    mean = sum(words) / len(words)
    deviation = (sum((n - mean) ** 2 for n in words) / len(words)) ** 0.5
    assert abs(sum(made_words) / 5000 - mean) < 4 * deviation / 5000**0.5
    assert made == growth.different_sentences(sentences, 5000, seed=1)
    assert made[:10] != growth.different_sentences(sentences, 10, seed=2)


def test_quick_data_is_whole_enough_to_be_trained_on_and_scored(tmp_path):
    glue_dir = _quick_data(sample_glue_dir(), tmp_path)
    assert pathlib.Path(glue_dir).is_relative_to(tmp_path)
    assert [len(read_split("STS-B", f"{glue_dir}/STS-B", split)) for split in ("train", "dev", "test")] == [64] * 3
    lines = (pathlib.Path(sample_glue_dir()) / "STS-B" / "sts-test.csv").read_text(encoding="utf-8").splitlines()
    gold = [float(line.split("\t")[4]) for line in lines[:QUICK_PAIRS]]
    assert score_predictions(gold, "STS-B", glue_dir, "test").spearman == pytest.approx(1)
