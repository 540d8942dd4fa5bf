"""The names of calibrations, apart from these: scikit-learn, which they need, takes a second to load."""

import re

from bert_flow_tf.errors import ArgumentError, nearest

# Their k is chosen on dev among 1 to MOST_K (Table 5).
TUNED, MOST_K = ("natsv", "sn+natsv"), 20
_NAMES = ("none", "sn", *TUNED, "whitening", "flow")
_NUMBERED = re.compile(r"(natsv|sn\+natsv|whitening)-([1-9][0-9]*)")


def check_name(name: str) -> None:
    """Raises `ArgumentError` unless `name` is a calibration's, tuned ones too."""
    if name not in _NAMES and not _NUMBERED.fullmatch(name):
        raise ArgumentError(
            f"methods: unknown calibration {name!r}, expected some of none, sn, natsv, natsv-K, sn+natsv, sn+natsv-K, "
            f"whitening, whitening-D, flow{nearest(name, _NAMES)}"
        )
