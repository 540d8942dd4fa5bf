"""The check of a flow by its own equations sees a wrong density, a wrong inverse and a wrong folded form."""

import pytest

from bert_flow_tf.evaluation.self_check import self_check
from glow.flow import Glow
from glow.folded import FoldedFlow


def test_the_flow_does_what_its_equations_say():
    assert all(found <= limit for _, found, limit in self_check())


@pytest.mark.parametrize(
    ("place", "method", "what"),
    [(Glow, "inverse", "from x to z"), (Glow, "log_prob", "log-density"), (FoldedFlow, "__call__", "folded")],
)
def test_what_is_wrong_is_seen(place, method, what, monkeypatch):
    right = getattr(place, method)
    monkeypatch.setattr(place, method, lambda self, x: 1.001 * right(self, x))
    assert [what in name for name, found, limit in self_check() if found > limit] == [True]
