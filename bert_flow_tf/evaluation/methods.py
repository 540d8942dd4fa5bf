"""Names and scores of calibrations; this file loads no scikit-learn."""

import msgspec

from bert_flow_tf.errors import ArgumentError, suggest
from bert_flow_tf.files.json_files import Count, Positive, Seconds
from bert_flow_tf.runs.settings import FIT_METHOD

TUNED = ("natsv", "sn+natsv")  # These choose k on dev.


class CalibrationScores(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Scores of one calibration on test.

    Attributes:
      by_metric: scores; for the flow, means over its seeds.
      k, dev_by_k: for a tuned method, the chosen number of vectors, and every k's score on dev.
      by_seed: for the flow, the scores of each seed.
      seconds: time to fit and score.
    """

    method: str
    by_metric: dict[str, float]
    k: Positive | None = None
    dev_by_k: dict[int, float] = {}
    by_seed: dict[Count, dict[str, float]] = {}
    seconds: Seconds = 0.0


def check_name(name: str) -> None:
    """Raise `ArgumentError` for a calibration that cannot be compared."""
    if not is_method(name) and name not in ("none", *TUNED):
        known = ("none", "sn", *TUNED, "whitening", "flow")
        expected = ", ".join((*known, "natsv-K", "sn+natsv-K", "whitening-D"))
        raise ArgumentError(f"methods: unknown calibration {name!r}, expected some of {expected}{suggest(name, known)}")


def is_method(name: str) -> bool:
    """True for a calibration that `BertFlow.fit` can learn."""
    return FIT_METHOD.fullmatch(name) is not None
