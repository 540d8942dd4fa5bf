"""Measure whether a calibration helps, without labels.

docs/witness.md shows how often the measure agrees with labelled pairs.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_flow_tf.calibration.judgement import AS_IT_IS, Encode, Map
from bert_flow_tf.vectors.isotropy import directions_in_use
from bert_flow_tf.vectors.metrics import spearman_or_zero
from bert_flow_tf.vectors.similarities import cosines

# docs/witness.md says how these bounds were found, and how often the claims are right.
_FEW_DIRECTIONS = 25
_MANY_DIRECTIONS = 45
_FALL = 0.015
_LEAST_SENTENCES = 100
COMPARE = "; compare with labelled pairs (--pairs)"


@dataclasses.dataclass(frozen=True)
class Witness:
    """A measure without labels, before and after a calibration.

    Attributes:
      before, after: Spearman's correlation between a sentence's share of the words in a mixture of
        two sentences and its cosine with the mixture.
      directions: the participation ratio of the sentences before, see `directions`.
    """

    sentences: int
    before: float
    after: float
    directions: float

    @property
    def claim(self) -> str:
        """The verdict: "helps", "harms" or "no clear change"."""
        if self.sentences < _LEAST_SENTENCES:
            return "no clear change"
        if self.after > self.before and self.directions < _FEW_DIRECTIONS:
            return "helps"
        if self.after < self.before - _FALL and self.directions > _MANY_DIRECTIONS:
            return "harms"
        return "no clear change"

    def __str__(self) -> str:
        claim = self.claim + (COMPARE if self.claim == "no clear change" else "")
        return f"{claim}: {self.figures}{AS_IT_IS if self.claim == 'harms' else ''}"

    @property
    def figures(self) -> str:
        """The figures that the claim rests on."""
        return (
            f"{self.sentences:,} held-out sentences in {self.directions:.0f} directions, mixtures "
            f"recognised, {100 * self.before:.2f} before, {100 * self.after:.2f} after (x100)"
        )


def directions(embeddings: np.ndarray) -> float:
    """Return the `directions_in_use` of embeddings [n, D]."""
    variances = np.linalg.svd(embeddings - embeddings.mean(axis=0), compute_uv=False) ** 2
    return directions_in_use(variances, *embeddings.shape)


def witness(
    encode: Encode,
    before: Map,
    after: Map,
    sentences: Sequence[str],
    u: np.ndarray,
    seed: int = 0,
) -> Witness:
    """Return the `Witness` of a calibration.

    Args:
      encode: function from sentences to the encoder's embeddings [n, D].
      before, after: functions from these to the embeddings without and with the calibration.
      sentences: 2 or more sentences that were not used to learn the calibration.
      u: their embeddings by `encode`.
      seed: seed of the drawn words and pairs.
    """
    mixtures, shares = _draw_mixtures(sentences, np.random.default_rng([seed, 4]))
    mixed = encode(mixtures)
    return Witness(
        sentences=len(sentences),
        before=spearman_or_zero(cosines(before(u), before(mixed)), shares),
        after=spearman_or_zero(cosines(after(u), after(mixed)), shares),
        directions=directions(u),
    )


def _draw_mixtures(
    sentences: Sequence[str], rng: np.random.Generator
) -> tuple[list[str], np.ndarray]:
    """Return mixtures of each sentence's words with another's, and its shares."""
    mixtures, shares = [], []
    for i, sentence in enumerate(sentences):
        words = sentence.split() or [""]
        other = sentences[(i + 1 + rng.integers(len(sentences) - 1)) % len(sentences)].split() or [
            ""
        ]
        kept = rng.permutation(len(words)) < round(rng.uniform() * len(words))
        mixed = [
            word if keep else other[rng.integers(len(other))]
            for word, keep in zip(words, kept, strict=True)
        ]
        mixtures.append(" ".join(mixed))
        shares.append(kept.mean())
    return mixtures, np.array(shares)
