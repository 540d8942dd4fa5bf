import tensorflow as tf

from glow.actnorm import ActNorm
from glow.config import GlowConfig
from glow.flow import Glow


def test_a_bijector_equals_itself_alone():
    b, logs = tf.Variable([1.0, -2.0]), tf.Variable([0.0, 0.5])
    one, other = ActNorm(b, logs), ActNorm(b, logs)
    assert one == one and hash(one) == hash(one)
    assert one != other and len({one, other}) == 2


def test_looking_up_a_flow_reads_none_of_its_variables(monkeypatch):
    flow = Glow(GlowConfig(n_levels=2, depth=2, coupling_width=4), 8, seed=0)
    monkeypatch.setattr(ActNorm, "_get_parameterization", None)
    assert hash(flow.bijector) == hash(flow.bijector)
