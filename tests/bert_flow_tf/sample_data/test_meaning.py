"""The score follows the meaning: same meaning 1, less shared meaning less, whatever the words."""

import dataclasses

import pytest

from bert_flow_tf.sample_data.lexicon import load
from bert_flow_tf.sample_data.meaning import N_STRUCTURES, WIDER, Meaning, Style, realise, similarity

LEXICON = load()
CHEF_SLICES_ONIONS = Meaning(domain=0, event=0, agent=0, object=0, place=0, time=0)


def changed(**parts):
    return dataclasses.replace(CHEF_SLICES_ONIONS, **parts)


def share(other):
    return similarity(LEXICON, CHEF_SLICES_ONIONS, other)


def test_a_meaning_shares_all_of_itself():
    assert share(CHEF_SLICES_ONIONS) == pytest.approx(1)


def test_sharing_is_symmetric():
    other = changed(agent=1, place=None, manner=1)
    assert share(other) == similarity(LEXICON, other, CHEF_SLICES_ONIONS)


def test_the_more_parts_differ_the_less_is_shared():
    shares = [
        share(CHEF_SLICES_ONIONS),
        share(changed(time=None)),
        share(changed(time=1)),
        share(changed(time=1, place=1)),
        share(changed(time=1, place=1, agent=1)),
        share(changed(time=1, place=1, agent=1, object=1)),
        share(changed(time=1, place=1, agent=1, object=1, event=1)),
        share(changed(domain=1, event=0, agent=0, object=0, time=1, place=1)),
    ]
    assert shares == sorted(shares, reverse=True) and len(set(shares)) == len(shares)
    assert shares[-1] < 0.1


def test_a_wider_word_shares_more_than_another_one():
    assert share(changed(agent=WIDER)) > share(changed(agent=1))
    assert share(changed(object=WIDER)) > share(changed(object=1))


def test_a_denial_shares_less():
    assert share(changed(negated=True)) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("style", "sentence"),
    [
        (Style(0, 0, False, 0), "The chef sliced the onions in the kitchen on Monday morning."),
        (Style(1, 0, True, 1), "On Monday morning, a chef sliced onions in the kitchen."),
        (Style(2, 1, False, 0), "The onions were cut up by the head cook early on Monday at the stove."),
        (Style(4, 2, True, 0), "It was a chef who chopped onions in the kitchen on Monday morning."),
        (Style(5, 0, False, 0), "The chef was the one who sliced the onions in the kitchen on Monday morning."),
    ],
)
def test_one_meaning_in_many_words(style, sentence):
    assert realise(LEXICON, CHEF_SLICES_ONIONS, style) == sentence


@pytest.mark.parametrize("structure", range(N_STRUCTURES))
@pytest.mark.parametrize("present", [False, True])
def test_a_denial_says_not_in_every_structure(structure, present):
    meaning = changed(negated=True, present=present, time=None)
    assert " not " in realise(LEXICON, meaning, Style(structure, 0, False, 0))


def test_every_event_can_be_said_in_every_structure():
    for d, domain in enumerate(LEXICON.domains):
        for e, event in enumerate(domain.events):
            for o in (WIDER, *range(len(event.objects))):
                for structure in range(N_STRUCTURES):
                    sentence = realise(LEXICON, Meaning(d, e, 0 if o else 1, o), Style(structure, o % 3, False, 0))
                    assert sentence[0].isupper() and sentence.endswith(".")


def test_verbs_have_four_forms_and_concepts_are_told_apart():
    for domain in LEXICON.domains:
        names = [noun.text for agent in domain.agents for noun in agent.nouns]
        assert len(set(names)) == len(names)
        for event in domain.events:
            words = [noun.text for thing in event.objects for noun in thing.nouns]
            assert len(set(words)) == len(words)
