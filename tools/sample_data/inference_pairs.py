"""Pairs of a premise and a hypothesis that it entails, contradicts or leaves open.

The labels are made the way people made those of SNLI and MNLI, who were shown a sentence about a scene and wrote one
that is true of that scene too, one that cannot be, and one that may be. What they wrote for "cannot be" is mostly
another activity or another scene, seldom the same sentence denied; "may be" keeps a part of the scene and adds to it;
"true" says less of the same. So the labels follow the topic in the main. Pairs that all speak of one event and differ
in a detail would teach an encoder that the topic does not matter.

How much fine-tuning changes an encoder still depends on its seed: 75 steps of 16 at 2e-5 took the demo encoder's
Spearman (avg) on the sample's STS test part from 0.789 to 0.810 with seed 1234, and to 0.653 with seed 7.
"""

import dataclasses
import random

from tools.sample_data.lexicon import Lexicon
from tools.sample_data.meaning import WIDER, Meaning, Style, realise
from tools.sample_data.similarity_pairs import fitted, random_meaning

LABELS = ("contradiction", "entailment", "neutral")

# Chance that both sentences have one style. The closer the meanings the more the wording differs, so that overlap of
# words says little about the label.
_SAME_STYLE = {"contradiction": 0.5, "entailment": 0.0, "neutral": 0.35}


def make_pair(lexicon: Lexicon, rng: random.Random, index: int) -> tuple[str, str, str, str]:
    """(domain, premise, hypothesis, label) of the index-th pair; labels take turns."""
    label = LABELS[index % len(LABELS)]
    # A report of an event does not entail it, so no sources here.
    premise = dataclasses.replace(random_meaning(lexicon, rng, people=rng.random() < 0.15), source=None)
    if label == "entailment":
        hypothesis = _less_specific(lexicon, rng, premise)
    elif label == "neutral":
        premise, hypothesis = _left_open(lexicon, rng, premise)
    else:
        hypothesis = _contradicted(lexicon, rng, premise)
    style = Style.any(rng)
    other = style if rng.random() < _SAME_STYLE[label] else style.other(rng)
    domain = lexicon.domains[premise.domain].name
    return domain, realise(lexicon, premise, style), realise(lexicon, hypothesis, other), label


def _less_specific(lexicon: Lexicon, rng: random.Random, premise: Meaning) -> Meaning:
    """What follows from the premise: details left out, wider words."""
    wider = {part: WIDER for part in ("agent", "object") if rng.random() < 0.2}
    return _with_details_dropped(rng, fitted(lexicon, dataclasses.replace(premise, **wider)))


def _left_open(lexicon: Lexicon, rng: random.Random, premise: Meaning) -> tuple[Meaning, Meaning]:
    """A premise, and a hypothesis that says more than it does or something else that may be so as well."""
    kind = rng.random()
    if kind < 0.7:
        return premise, _beside(lexicon, rng, premise)
    if kind < 0.8:
        part = rng.choice(["agent", "object"])
        return fitted(lexicon, dataclasses.replace(premise, **{part: WIDER})), premise
    added = rng.choice(premise.details())
    dropped = {name: None for name in premise.details() if name != added and rng.random() < 0.3}
    return dataclasses.replace(premise, **{added: None}), dataclasses.replace(premise, **dropped)


def _beside(lexicon: Lexicon, rng: random.Random, premise: Meaning) -> Meaning:
    """What another agent does too, or the same agent to another object; at another time, where there is one."""
    domain = lexicon.domains[premise.domain]
    part, things = rng.choice([("agent", domain.agents), ("object", domain.events[premise.event].objects)])
    taken = {premise.agent, premise.object} if domain.events[premise.event].between_people else {getattr(premise, part)}
    other = dataclasses.replace(premise, **{part: _other(rng, len(things), taken)})
    if premise.time is not None:
        other = dataclasses.replace(other, time=_other(rng, len(lexicon.times), {premise.time}))
    return _with_details_dropped(rng, fitted(lexicon, other))


def _contradicted(lexicon: Lexicon, rng: random.Random, premise: Meaning) -> Meaning:
    """What cannot be true of the same scene: another event in its place, another scene, or its denial."""
    kind = rng.random()
    if kind < 0.12:
        # Fewer details in the denial would deny more than the premise says, which contradicts it too.
        return _with_details_dropped(rng, dataclasses.replace(premise, negated=True))
    if kind < 0.5:
        other = random_meaning(lexicon, rng, domain=premise.domain)
        while other.event == premise.event:
            other = random_meaning(lexicon, rng, domain=premise.domain)
        kept = {"agent": premise.agent} if rng.random() < 0.7 else {}
        other = dataclasses.replace(other, place=premise.place, **kept)
    else:
        other = random_meaning(lexicon, rng, domain=_other(rng, len(lexicon.domains), {premise.domain}))
    # Of the same time: what happens at another one contradicts nothing.
    return dataclasses.replace(other, present=premise.present, time=premise.time, source=None)


def _with_details_dropped(rng: random.Random, meaning: Meaning) -> Meaning:
    return dataclasses.replace(meaning, **{name: None for name in meaning.details() if rng.random() < 0.4})


def _other(rng: random.Random, size: int, taken: set[int]) -> int:
    return rng.choice([i for i in range(size) if i not in taken])
