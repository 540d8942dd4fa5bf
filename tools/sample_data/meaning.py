"""What a sample sentence means, how to say it, and how much of it two sentences share.

A meaning is a choice of concepts; a style is a choice of words and of word order. The two are independent, so a pair
can say the same in other words, or something else in nearly the same words.
"""

import dataclasses
import random

from tools.sample_data.lexicon import Domain, Event, Lexicon, Noun, Thing, Verb

# An agent or object that is named by the wider word only: "a person" for "the chef".
WIDER = -1

# Share of the meaning that each part carries.
WEIGHTS = {
    "event": 0.30,
    "object": 0.27,
    "agent": 0.18,
    "place": 0.08,
    "adjective": 0.07,
    "count": 0.06,
    "time": 0.06,
    "purpose": 0.06,
    "manner": 0.04,
    "source": 0.03,
}
DETAILS = ("place", "time", "purpose", "manner", "adjective", "count", "source")
ADVERBIALS = ("purpose", "place", "time", "manner")

N_STRUCTURES = 6


@dataclasses.dataclass(frozen=True)
class Meaning:
    """Who does what to whom, where, when, why and how.

    Every part is the number of a concept in its list in the lexicon; a detail that is not mentioned is None.
    """

    domain: int
    event: int
    agent: int
    object: int
    place: int | None = None
    time: int | None = None
    purpose: int | None = None
    manner: int | None = None
    adjective: int | None = None
    count: int | None = None
    source: int | None = None
    present: bool = False
    negated: bool = False

    def details(self) -> list[str]:
        """Names of the details that are mentioned."""
        return [name for name in DETAILS if getattr(self, name) is not None]


@dataclasses.dataclass(frozen=True)
class Style:
    """How a meaning is put: its structure, and for every part which of its words."""

    structure: int
    words: int
    indefinite: bool
    fronted: int

    @classmethod
    def any(cls, rng: random.Random) -> "Style":
        """Any style."""
        return cls(rng.randrange(N_STRUCTURES), rng.randrange(6), rng.random() < 0.5, rng.randrange(4))

    def other(self, rng: random.Random) -> "Style":
        """A style with another structure and, wherever a concept has more than one word, other words."""
        structure = (self.structure + rng.randrange(1, N_STRUCTURES)) % N_STRUCTURES
        return Style(structure, self.words + 1, not self.indefinite, self.fronted + 1)


def applicable(lexicon: Lexicon, meaning: Meaning, detail: str) -> int:
    """How many concepts a detail can be chosen from: 0 where it does not suit the meaning."""
    domain = lexicon.domains[meaning.domain]
    event = domain.events[meaning.event]
    if detail == "adjective":
        return 0 if meaning.object == WIDER else len(event.adjectives)
    if detail == "count":
        return len(lexicon.counts) if meaning.object != WIDER and event.objects[meaning.object].countable else 0
    if detail == "time":
        return 0 if meaning.present else len(lexicon.times)
    if detail in ("place", "purpose"):
        return len(getattr(domain, f"{detail}s"))
    return len(getattr(lexicon, f"{detail}s"))


def similarity(lexicon: Lexicon, a: Meaning, b: Meaning) -> float:
    """The share, 0 to 1, of their meaning that two meanings have in common.

    It is the mean of the parts' similarities, weighted by `WEIGHTS`, over the parts that at least one of the two
    mentions; 0.6 of it where one denies what the other says.
    """
    total = shared = 0.0
    for part, weight in WEIGHTS.items():
        value_a, value_b = getattr(a, part), getattr(b, part)
        if value_a is None and value_b is None:
            continue
        total += weight
        shared += weight * _part_similarity(lexicon, a, b, part)
    share = shared / total
    return 0.6 * share if a.negated != b.negated else share


def _part_similarity(lexicon: Lexicon, a: Meaning, b: Meaning, part: str) -> float:
    value_a, value_b = getattr(a, part), getattr(b, part)
    domain_a, domain_b = lexicon.domains[a.domain], lexicon.domains[b.domain]
    same_domain = a.domain == b.domain
    if part == "event":
        return _event_similarity(domain_a, domain_b, a, b)
    if part == "agent":
        if same_domain and value_a == value_b:
            return 1.0
        if not same_domain:
            return 0.0
        return 0.6 if WIDER in (value_a, value_b) else 0.15
    if part == "object":
        if not same_domain:
            return 0.0
        if a.event != b.event:
            return 0.1
        if value_a == value_b:
            return 1.0
        return 0.6 if WIDER in (value_a, value_b) else 0.15
    if value_a is None or value_b is None:
        # Left open: it may be the same, if the two speak of the same things at all.
        return 0.5 if same_domain else 0.0
    if part in ("place", "purpose", "adjective") and not same_domain:
        return 0.0
    if part == "adjective" and a.event != b.event:
        return 0.0
    return 1.0 if value_a == value_b else 0.1


def _event_similarity(domain_a: Domain, domain_b: Domain, a: Meaning, b: Meaning) -> float:
    if a.domain == b.domain and a.event == b.event:
        return 1.0
    bases_a = {verb.base for verb in domain_a.events[a.event].verbs}
    bases_b = {verb.base for verb in domain_b.events[b.event].verbs}
    if bases_a & bases_b:
        return 0.5
    return 0.1 if a.domain == b.domain else 0.0


def realise(lexicon: Lexicon, meaning: Meaning, style: Style) -> str:
    """The sentence that says `meaning` in `style`."""
    domain = lexicon.domains[meaning.domain]
    event = domain.events[meaning.event]
    structure = style.structure
    if meaning.negated and structure >= 4:
        structure -= 4  # a cleft would deny the agent, not the event
    verb = event.verbs[style.words % len(event.verbs)]
    agent, agent_number = _agent(domain, meaning, style)
    object_, object_number = _object(lexicon, event, meaning, style)
    adverbials = [
        _word(phrases[getattr(meaning, name)], style)
        for name, phrases in (
            ("purpose", domain.purposes),
            ("place", domain.places),
            ("time", lexicon.times),
            ("manner", lexicon.manners),
        )
        if getattr(meaning, name) is not None
    ]
    if style.words % 2:
        adverbials.reverse()
    front = ""
    if structure in (1, 3) and adverbials:
        front = adverbials.pop(style.fronted % len(adverbials)) + ", "
    clause = _clause(domain, verb, structure, (agent, agent_number), (object_, object_number), meaning)
    sentence = front + " ".join([clause, *adverbials])
    if meaning.source is not None:
        return _reported(sentence, _word(lexicon.sources[meaning.source], style), style)
    return _capitalised(_ended(sentence))


def _clause(
    domain: Domain, verb: Verb, structure: int, agent: tuple[str, str], object_: tuple[str, str], meaning: Meaning
) -> str:
    (agent_text, agent_number), (object_text, object_number) = agent, object_
    plural_agent, plural_object = agent_number == "plural", object_number == "plural"
    negation = " not" if meaning.negated else ""
    if meaning.present:
        agent_is, object_is = "are" if plural_agent else "is", "are" if plural_object else "is"
        if structure in (2, 3):
            return f"{object_text} {object_is}{negation} being {verb.participle} by {agent_text}"
        if structure == 4:
            return f"{agent_text} can be seen {verb.ing} {object_text}"
        if structure == 5:
            return f"it is {agent_text} {domain.pronoun} {agent_is} {verb.ing} {object_text}"
        return f"{agent_text} {agent_is}{negation} {verb.ing} {object_text}"
    if structure in (2, 3):
        return f"{object_text} {'were' if plural_object else 'was'}{negation} {verb.participle} by {agent_text}"
    if structure == 4:
        return f"it was {agent_text} {domain.pronoun} {verb.past} {object_text}"
    if structure == 5:
        which = "what" if agent_number == "mass" else f"the one {domain.pronoun}"
        return f"{agent_text} was {which} {verb.past} {object_text}"
    if meaning.negated:
        return f"{agent_text} did not {verb.base} {object_text}"
    return f"{agent_text} {verb.past} {object_text}"


def _reported(sentence: str, source: str, style: Style) -> str:
    form = (style.words + style.structure) % 4
    if form == 0:
        return _ended(f"According to {source}, {sentence}")
    if form == 1:
        return f"{_capitalised(sentence)}, {source} said."
    if form == 2:
        return f'"{_capitalised(sentence)}," {source} reported.'
    return _ended(f"{_capitalised(source)} said that {sentence}")


def _agent(domain: Domain, meaning: Meaning, style: Style) -> tuple[str, str]:
    thing = domain.general if meaning.agent == WIDER else domain.agents[meaning.agent]
    noun = _word(thing.nouns, style)
    return _with_article(noun, style.indefinite or meaning.agent == WIDER), noun.number


def _object(lexicon: Lexicon, event: Event, meaning: Meaning, style: Style) -> tuple[str, str]:
    thing: Thing = event.wider_object if meaning.object == WIDER else event.objects[meaning.object]
    noun = _word(thing.nouns, style)
    if meaning.adjective is not None:
        noun = dataclasses.replace(noun, text=f"{_word(event.adjectives[meaning.adjective], style)} {noun.text}")
    if meaning.count is not None:
        return f"{_word(lexicon.counts[meaning.count], style)} {noun.text}", noun.number
    indefinite = not thing.definite and (style.indefinite or meaning.object == WIDER)
    return _with_article(noun, indefinite), noun.number


def _with_article(noun: Noun, indefinite: bool) -> str:
    if noun.text.startswith(("some", "Dr ", "Professor ")):
        return noun.text
    if not indefinite:
        return f"the {noun.text}"
    if noun.number != "singular":
        return noun.text
    return f"{'an' if noun.text[0] in 'aeiouA' else 'a'} {noun.text}"


def _word(words: tuple, style: Style):
    return words[style.words % len(words)]


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith(".") else sentence + "."  # "at 7:30 a.m." has its full stop


def _capitalised(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
