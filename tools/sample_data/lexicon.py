"""The vocabulary of the sample sentences, read from `lexicon.txt`, whose head explains its notation."""

import dataclasses
import functools
import pathlib


@dataclasses.dataclass(frozen=True)
class Noun:
    """A noun phrase without its article; `number` is "singular", "plural" or "mass"."""

    text: str
    number: str


@dataclasses.dataclass(frozen=True)
class Verb:
    """A transitive verb; `past` and `ing` may be longer phrases than `participle`, which has to suit the passive."""

    base: str
    past: str
    participle: str
    ing: str


@dataclasses.dataclass(frozen=True)
class Thing:
    """A concept with the nouns that name it; `definite`: always "the" one, and not counted."""

    nouns: tuple[Noun, ...]
    definite: bool = False

    @property
    def countable(self) -> bool:
        """True where it can be said how many there are."""
        return not self.definite and all(noun.number == "plural" for noun in self.nouns)


@dataclasses.dataclass(frozen=True)
class Event:
    """What an agent can do to some objects; `adjectives` exclude each other."""

    verbs: tuple[Verb, ...]
    objects: tuple[Thing, ...]
    wider_object: Thing
    adjectives: tuple[tuple[str, ...], ...]
    between_people: bool = False


@dataclasses.dataclass(frozen=True)
class Domain:
    """A part of life, with what happens there."""

    name: str
    pronoun: str
    general: Thing
    agents: tuple[Thing, ...]
    places: tuple[tuple[str, ...], ...]
    purposes: tuple[tuple[str, ...], ...]
    events: tuple[Event, ...]


@dataclasses.dataclass(frozen=True)
class Lexicon:
    """All domains, and the phrases that suit every one of them."""

    domains: tuple[Domain, ...]
    times: tuple[tuple[str, ...], ...]
    manners: tuple[tuple[str, ...], ...]
    counts: tuple[tuple[str, ...], ...]
    sources: tuple[tuple[str, ...], ...]


@functools.cache
def load() -> Lexicon:
    """The lexicon."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for line in pathlib.Path(__file__).with_name("lexicon.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            entries = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            key, value = line.split(" = ", 1)
            entries.append((key.strip(), value))
    everywhere = sections.pop("everywhere")
    people = [_verbs(value) for key, value in everywhere if key == "between_people"]
    phrases = {key: _phrases(value) for key, value in everywhere if key != "between_people"}
    return Lexicon(domains=tuple(_domain(name, entries, people) for name, entries in sections.items()), **phrases)


def _domain(name: str, entries: list[tuple[str, str]], people: list[tuple[Verb, ...]]) -> Domain:
    single = {key: value for key, value in entries if key != "event"}
    agents = tuple(_thing(text) for text in single["agents"].split(" ; "))
    general = _thing(single["general"])
    events = [_event(value) for key, value in entries if key == "event"]
    if single["pronoun"] == "who":
        events += [Event(verbs, agents, general, (), between_people=True) for verbs in people]
    return Domain(
        name=name,
        pronoun=single["pronoun"],
        general=general,
        agents=agents,
        places=_phrases(single["places"]),
        purposes=_phrases(single["purposes"]),
        events=tuple(events),
    )


def _event(text: str) -> Event:
    verbs, objects, wider, adjectives = text.split(" :: ")
    return Event(
        verbs=_verbs(verbs),
        objects=tuple(_thing(part) for part in objects.split(" ; ")),
        wider_object=_thing(wider),
        adjectives=_phrases(adjectives),
    )


def _verbs(text: str) -> tuple[Verb, ...]:
    return tuple(Verb(*form.strip().split(",")) for form in text.split(" | "))


def _phrases(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(part.strip().split("|")) for part in text.split(" ; "))


def _thing(text: str) -> Thing:
    text = text.strip()
    return Thing(tuple(_noun(form) for form in text.removeprefix("!").split("|")), definite=text.startswith("!"))


def _noun(text: str) -> Noun:
    for mark, number in (("+", "plural"), ("~", "mass")):
        if text.endswith(mark):
            return Noun(text.removesuffix(mark), number)
    return Noun(text, "singular")
