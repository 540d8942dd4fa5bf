"""Warnings that name the line of the user's own code."""

import sys
import warnings

# scikit-learn's pipelines call the calibrator on behalf of the user's line.
_LIBRARIES = ("bert_flow_tf", "glow", "sklearn")


def warn_user(message: str) -> None:
    """Warn at the innermost line outside this library."""
    frame = sys._getframe(1)
    level = 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        frame = frame.f_back
        level += 1
    warnings.warn(message, stacklevel=level)
