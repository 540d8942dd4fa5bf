"""Pairs of a premise and a hypothesis that it entails, contradicts or leaves open."""

import dataclasses
import random

from bert_flow_tf.sample_data.lexicon import Lexicon
from bert_flow_tf.sample_data.meaning import WIDER, Meaning, Style, applicable, realise
from bert_flow_tf.sample_data.similarity_pairs import fitted, random_meaning

LABELS = ("contradiction", "entailment", "neutral")


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
    other = style if rng.random() < 0.35 else style.other(rng)
    domain = lexicon.domains[premise.domain].name
    return domain, realise(lexicon, premise, style), realise(lexicon, hypothesis, other), label


def _less_specific(lexicon: Lexicon, rng: random.Random, premise: Meaning) -> Meaning:
    """What follows from the premise: details left out, wider words."""
    dropped = {name: None for name in premise.details() if rng.random() < 0.5}
    wider = {part: WIDER for part in ("agent", "object") if rng.random() < 0.35}
    return fitted(lexicon, dataclasses.replace(premise, **dropped, **wider))


def _left_open(lexicon: Lexicon, rng: random.Random, premise: Meaning) -> tuple[Meaning, Meaning]:
    """A premise, and a hypothesis that says more than it does."""
    if rng.random() < 0.4:
        part = rng.choice(["agent", "object"])
        return fitted(lexicon, dataclasses.replace(premise, **{part: WIDER})), premise
    added = rng.choice(premise.details())
    dropped = {name: None for name in premise.details() if name != added and rng.random() < 0.3}
    return dataclasses.replace(premise, **{added: None}), dataclasses.replace(premise, **dropped)


def _contradicted(lexicon: Lexicon, rng: random.Random, premise: Meaning) -> Meaning:
    """What cannot be true of the same event: its denial, or another detail in place of one."""
    replaceable = [name for name in premise.details() if name in ("place", "time", "adjective", "count")]
    if not replaceable or rng.random() < 0.4:
        # Fewer details in the denial would deny more than the premise says, which contradicts it too.
        dropped = {name: None for name in premise.details() if rng.random() < 0.5}
        return dataclasses.replace(premise, negated=True, **dropped)
    name = rng.choice(replaceable)
    options = [i for i in range(applicable(lexicon, premise, name)) if i != getattr(premise, name)]
    dropped = {other: None for other in premise.details() if other != name and rng.random() < 0.4}
    return dataclasses.replace(premise, **dropped, **{name: rng.choice(options)})
