"""Pairs of sentences scored 0 to 5 by how much of their meaning they share."""

import dataclasses
import random

from tools.sample_data.lexicon import Lexicon
from tools.sample_data.meaning import (
    DETAILS,
    WIDER,
    Meaning,
    Style,
    applicable,
    realise,
    similarity,
)

# kind of pair: (how many in a hundred, chance that both sentences have one style). The closer the meanings the more the
# wording differs, so that overlap of words says little about the score.
KINDS = {
    "paraphrase": (14, 0.0),
    "detail": (17, 0.35),
    "one_part": (22, 0.4),
    "two_parts": (18, 0.4),
    "topic": (13, 0.4),
    "frame": (5, 1.0),
    "unrelated": (5, 0.4),
    "verb": (2, 0.4),
    "swap": (2, 0.6),
    "denial": (2, 0.4),
}
# Details that suit everything, and would make all sentences alike if they were frequent.
_SELDOM = ("manner", "source")
_ORDER = [kind for kind, (percent, _) in KINDS.items() for _ in range(percent)]


def make_pair(lexicon: Lexicon, rng: random.Random, index: int) -> tuple[str, str, str, str]:
    """(domain, sentence, sentence, score with three decimals) of the index-th pair.

    Every hundred pairs hold each kind in its share.
    """
    # 37 shares no factor with 100, so a part of a hundred holds all kinds too.
    kind = _ORDER[index * 37 % len(_ORDER)]
    a, b = _meanings(lexicon, rng, kind)
    style = Style.any(rng)
    other = style if rng.random() < KINDS[kind][1] else style.other(rng)
    sentences = [realise(lexicon, a, style), realise(lexicon, b, other)]
    rng.shuffle(sentences)
    score = 5 * similarity(lexicon, a, b)
    return lexicon.domains[a.domain].name, *sentences, f"{score:.3f}"


def random_meaning(lexicon: Lexicon, rng: random.Random, domain: int | None = None, people: bool = False) -> Meaning:
    """Any meaning with one to four details; `people`: somebody does something to somebody."""
    if domain is None:
        candidates = [i for i, d in enumerate(lexicon.domains) if not people or d.pronoun == "who"]
        domain = rng.choice(candidates)
    events = [i for i, e in enumerate(lexicon.domains[domain].events) if e.between_people == people]
    event = rng.choice(events)
    agent = rng.randrange(len(lexicon.domains[domain].agents))
    objects = [i for i in range(len(lexicon.domains[domain].events[event].objects)) if not people or i != agent]
    meaning = Meaning(domain, event, agent, rng.choice(objects), present=rng.random() < 0.3)
    usual = [name for name in DETAILS if applicable(lexicon, meaning, name) and name not in _SELDOM]
    chosen = rng.sample(usual, min(len(usual), rng.randint(1, 3)))
    chosen += [name for name in _SELDOM if rng.random() < 0.15]
    return dataclasses.replace(meaning, **{name: rng.randrange(applicable(lexicon, meaning, name)) for name in chosen})


def fitted(lexicon: Lexicon, meaning: Meaning) -> Meaning:
    """`meaning` without the details that do not suit it."""
    return dataclasses.replace(
        meaning,
        **{name: None for name in meaning.details() if getattr(meaning, name) >= applicable(lexicon, meaning, name)},
    )


def change_detail(lexicon: Lexicon, rng: random.Random, meaning: Meaning) -> Meaning:
    """`meaning` with one detail dropped, added or replaced by another."""
    name = rng.choice([name for name in DETAILS if applicable(lexicon, meaning, name)])
    value = getattr(meaning, name)
    options: list[int | None] = [i for i in range(applicable(lexicon, meaning, name)) if i != value]
    if value is not None:
        options += [None] * len(options)
    return dataclasses.replace(meaning, **{name: rng.choice(options)})


def _change_part(lexicon: Lexicon, rng: random.Random, meaning: Meaning, part: str) -> Meaning:
    domain = lexicon.domains[meaning.domain]
    if part == "agent":
        # WIDER once more than the rest: "a person" for "a chef" is a small change.
        options = [i for i in range(len(domain.agents)) if i != meaning.agent] + [WIDER]
        return dataclasses.replace(meaning, agent=rng.choice(options))
    if part == "object":
        options = [i for i in range(len(domain.events[meaning.event].objects)) if i != meaning.object] + [WIDER]
        return fitted(lexicon, dataclasses.replace(meaning, object=rng.choice(options)))
    options = [i for i, e in enumerate(domain.events) if i != meaning.event and not e.between_people]
    event = rng.choice(options)
    object_ = rng.randrange(len(domain.events[event].objects))
    return fitted(lexicon, dataclasses.replace(meaning, event=event, object=object_, adjective=None))


def _meanings(lexicon: Lexicon, rng: random.Random, kind: str) -> tuple[Meaning, Meaning]:
    a = random_meaning(lexicon, rng, people=kind == "swap")
    if kind == "paraphrase":
        return a, a
    if kind == "detail":
        b = change_detail(lexicon, rng, a)
        return a, change_detail(lexicon, rng, b) if rng.random() < 0.4 else b
    if kind == "one_part":
        b = _change_part(lexicon, rng, a, rng.choice(["agent", "object", "event"]))
        return a, change_detail(lexicon, rng, b) if rng.random() < 0.4 else b
    if kind == "two_parts":
        b = _change_part(lexicon, rng, a, rng.choice(["object", "event"]))
        return a, change_detail(lexicon, rng, _change_part(lexicon, rng, b, "agent"))
    if kind == "topic":
        b = random_meaning(lexicon, rng, domain=a.domain)
        return a, fitted(lexicon, dataclasses.replace(b, present=a.present, time=None if a.present else a.time))
    if kind == "swap":
        return a, dataclasses.replace(a, agent=a.object, object=a.agent)
    if kind == "denial":
        return a, dataclasses.replace(a, negated=True)
    if kind == "verb":
        return a, _same_verb_elsewhere(lexicon, rng, a)
    other = rng.choice([i for i in range(len(lexicon.domains)) if i != a.domain])
    b = random_meaning(lexicon, rng, domain=other)
    if kind == "unrelated":
        return a, b
    # "frame": another domain in the same frame of words
    frame = {name: getattr(a, name) for name in ("present", "time", "manner", "source")}
    return a, fitted(lexicon, dataclasses.replace(b, **frame))


def _same_verb_elsewhere(lexicon: Lexicon, rng: random.Random, a: Meaning) -> Meaning:
    bases = {verb.base for verb in lexicon.domains[a.domain].events[a.event].verbs}
    elsewhere = [
        (d, e)
        for d, domain in enumerate(lexicon.domains)
        for e, event in enumerate(domain.events)
        if d != a.domain and not event.between_people and bases & {verb.base for verb in event.verbs}
    ]
    if not elsewhere:
        return random_meaning(lexicon, rng)
    domain, event = rng.choice(elsewhere)
    agent = rng.randrange(len(lexicon.domains[domain].agents))
    object_ = rng.randrange(len(lexicon.domains[domain].events[event].objects))
    return Meaning(domain, event, agent, object_, time=a.time, manner=a.manner, present=a.present)
