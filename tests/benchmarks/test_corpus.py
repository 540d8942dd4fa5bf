"""The sentences that are measured on."""

import pathlib
import types

import pytest

from benchmarks import corpus, growth
from benchmarks.flow_run import QUICK_PAIRS, _quick_data
from benchmarks.options import Options
from bert_flow_tf.eval_stsb import score_predictions
from bert_flow_tf.sample_data import sample_glue_dir
from bert_flow_tf.tasks import read_split


@pytest.fixture(scope="module")
def sentences():
    return corpus.all_sentences(Options(sample_glue_dir()))


def test_both_sentences_of_every_pair_of_every_split(sentences):
    splits = [read_split("STS-B", f"{sample_glue_dir()}/STS-B", split) for split in ("train", "dev", "test")]
    assert len(sentences) == 2 * sum(map(len, splits))
    assert sentences[:2] == [splits[0].sentences_a[0], splits[0].sentences_b[0]]
    assert sentences[-1] == splits[2].sentences_b[-1]
    assert corpus.all_sentences(Options(sample_glue_dir(), quick=True)) == sentences[: 2 * corpus.QUICK_PAIRS]


def test_distinct_is_what_word_pieces_tell_apart(monkeypatch):
    from bert_flow_tf import input_pipeline

    def tokenize(tokenizer, sentences, max_seq_length):
        rows = [sentence.lower().split()[: max_seq_length - 2] for sentence in sentences]
        return types.SimpleNamespace(to_list=lambda: rows)

    monkeypatch.setattr(input_pipeline, "tokenize", tokenize)
    sentences = ["A cat", "a dog", "a  CAT", "a dog", "a cat sleeps"]
    assert corpus.distinct_sentences(sentences, None, 64) == ["A cat", "a dog", "a cat sleeps"]
    assert corpus.distinct_sentences(sentences, None, 4) == ["A cat", "a dog"]


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
    scores = score_predictions(range(QUICK_PAIRS), "STS-B", glue_dir, "test")
    assert -1 <= scores.spearman <= 1
