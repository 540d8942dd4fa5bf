"""The labels follow the topic, as those of real NLI data do: most contradictions speak of something else."""

import random

import numpy as np
import pytest

from bert_flow_tf.sample_data import inference_pairs
from bert_flow_tf.sample_data.lexicon import load
from bert_flow_tf.sample_data.meaning import WIDER, realise, similarity

LEXICON = load()


@pytest.fixture(scope="module")
def meanings():
    """Premise and hypothesis, as meanings, of 600 pairs by label."""
    said = []

    def noted(lexicon, meaning, style):
        said.append(meaning)
        return realise(lexicon, meaning, style)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inference_pairs, "realise", noted)
        rng = random.Random(0)
        labels = [inference_pairs.make_pair(LEXICON, rng, index)[3] for index in range(600)]
    pairs = list(zip(said[::2], said[1::2], strict=True))
    return {label: pairs[labels.index(label) :: 3] for label in inference_pairs.LABELS}


def share(meanings, label, condition):
    return np.mean([condition(premise, hypothesis) for premise, hypothesis in meanings[label]])


def test_every_label_as_often(meanings):
    assert {label: len(pairs) for label, pairs in meanings.items()} == dict.fromkeys(inference_pairs.LABELS, 200)


def test_few_contradictions_are_denials_and_nothing_else_is(meanings):
    assert 0.06 <= share(meanings, "contradiction", lambda a, b: b.negated) <= 0.18
    assert not any(a.negated for pairs in meanings.values() for a, _ in pairs)
    assert not any(b.negated for label in ("entailment", "neutral") for _, b in meanings[label])


def test_contradictions_are_mostly_another_event_or_another_scene_of_the_same_time(meanings):
    assert 0.25 <= share(meanings, "contradiction", lambda a, b: a.domain == b.domain and a.event != b.event) <= 0.5
    assert 0.35 <= share(meanings, "contradiction", lambda a, b: a.domain != b.domain) <= 0.65
    for premise, hypothesis in meanings["contradiction"]:
        assert hypothesis.negated or (premise.event, premise.domain) != (hypothesis.event, hypothesis.domain)
        assert hypothesis.present == premise.present
        assert hypothesis.negated or hypothesis.time == premise.time


def test_an_entailed_meaning_has_nothing_that_the_premise_lacks(meanings):
    for premise, hypothesis in meanings["entailment"]:
        assert (hypothesis.domain, hypothesis.event) == (premise.domain, premise.event)
        assert hypothesis.agent in (premise.agent, WIDER) and hypothesis.object in (premise.object, WIDER)
        assert all(getattr(hypothesis, name) == getattr(premise, name) for name in hypothesis.details())


def test_a_neutral_meaning_keeps_the_event_and_has_something_that_the_premise_lacks(meanings):
    for premise, hypothesis in meanings["neutral"]:
        assert (hypothesis.domain, hypothesis.event) == (premise.domain, premise.event)
        new = [name for name in hypothesis.details() if getattr(hypothesis, name) != getattr(premise, name)]
        assert new or (hypothesis.agent, hypothesis.object) != (premise.agent, premise.object)
        another_time = None not in (premise.time, hypothesis.time) and hypothesis.time != premise.time
        assert not another_time or (hypothesis.agent, hypothesis.object) != (premise.agent, premise.object)


def test_entailment_shares_more_meaning_than_neutral_and_that_more_than_contradiction(meanings):
    mean = {label: np.mean([similarity(LEXICON, a, b) for a, b in pairs]) for label, pairs in meanings.items()}
    assert mean["entailment"] > mean["neutral"] + 0.1 > mean["contradiction"] + 0.3
