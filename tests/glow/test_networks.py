"""Networks and couplings of one's own work, or are refused by name."""

import dataclasses
import json
import pathlib
import pickle
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from glow import FlowCalibrator, Glow, GlowConfig
from glow.config import COUPLINGS, NETWORKS
from glow.coupling import AffineCoupling
from glow.saved import read_calibration

pytestmark = pytest.mark.usefixtures("small_default_flow")

ROOT = pathlib.Path(__file__).parents[2]
ROWS = np.random.default_rng(0).normal(size=(192, 8)) ** 3
CONFIG = GlowConfig(n_levels=2)


def linear_network(parameters, inputs, outputs, scale=1.0):
    kernel = parameters.normal("kernel", [inputs, outputs], stddev=0.1)
    return lambda x: scale * tf.tensordot(x, kernel, 1)


def dropping_network(parameters, inputs, outputs):
    kernel = parameters.normal("kernel", [inputs, outputs], stddev=0.1)
    return lambda x, drop=lambda h: h: tf.tensordot(drop(x), kernel, 1)


def network_with_a_variable(parameters, inputs, outputs):
    kernel = tf.Variable(tf.zeros([inputs, outputs]), name="mine")
    return lambda x: tf.tensordot(x, kernel, 1)


def keras_network(parameters, inputs, outputs):
    return tf_keras.layers.Dense(outputs, name="mine")


class ScaledCoupling(AffineCoupling):
    def __init__(self, network, dtype=tf.float32, coupling_scale=1.0):
        if coupling_scale <= 0:
            raise ValueError(f"coupling_scale: found {coupling_scale}, expected more than 0")
        self.scale = coupling_scale
        super().__init__(network, dtype)

    def _shift_and_log_scale(self, x1):
        output = self.network(x1)
        return output[..., 0::2], self.scale * tf.tanh(output[..., 1::2])


class CouplingWithAVariable(AffineCoupling):
    def __init__(self, network, dtype=tf.float32):
        self.mine = tf.Variable(0.0, name="mine")
        super().__init__(network, dtype)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(NETWORKS, "linear", f"{__name__}:linear_network")
    monkeypatch.setitem(COUPLINGS, "scaled", ScaledCoupling)
    monkeypatch.setitem(COUPLINGS, "variable", f"{__name__}:CouplingWithAVariable")


def test_an_own_network_is_trained_saved_and_loaded(registered, tmp_path):
    calibrator = FlowCalibrator(CONFIG, epochs=3, network=linear_network).fit(ROWS)
    kernels = [v for path, v in calibrator.flow_.variables_by_path.items() if "kernel" in path]
    fresh = Glow(CONFIG, 8, seed=calibrator.seed, network=linear_network)
    assert len(kernels) == CONFIG.n_levels * CONFIG.depth
    for path, variable in fresh.variables_by_path.items():
        assert np.any(variable.numpy() != calibrator.flow_.variables_by_path[path].numpy()), path
    calibrator.save(tmp_path / "saved")
    loaded = FlowCalibrator.load(tmp_path / "saved")
    assert loaded.config_.network == "linear"
    np.testing.assert_array_equal(loaded.transform(ROWS), calibrator.transform(ROWS))
    np.testing.assert_allclose(
        calibrator.inverse_transform(loaded.transform(ROWS)), ROWS, atol=1e-3
    )


def test_an_own_network_is_pickled_and_saved_after_it_has_got_a_name(tmp_path, monkeypatch):
    calibrator = FlowCalibrator(CONFIG, network=linear_network).fit(ROWS)
    again = pickle.loads(pickle.dumps(calibrator))
    np.testing.assert_array_equal(again.transform(ROWS), calibrator.transform(ROWS))
    with pytest.raises(ValueError, match=r"network: found linear_network.*= linear_network$"):
        calibrator.save(tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="not dense layers"):
        calibrator.flow_.dense_layers()
    monkeypatch.setitem(NETWORKS, "late", linear_network)
    calibrator.save(tmp_path / "saved")
    loaded = FlowCalibrator.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.transform(ROWS), calibrator.transform(ROWS))


@pytest.mark.parametrize(
    ("part", "found"), [(lambda *_: None, "<lambda>"), (3, "3"), ("linear", "linear")]
)
def test_what_cannot_be_found_by_its_path_is_not_registered(part, found):
    with pytest.raises(ValueError, match=f"found .*{found}, expected a class"):
        NETWORKS["mine"] = part
    assert "mine" not in NETWORKS


def test_a_part_of_a_script_is_asked_for_by_the_scripts_file(tmp_path, monkeypatch):
    main = types.ModuleType("__main__")
    main.gated = linear_network
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setitem(NETWORKS, "gated", "__main__:gated")
    calibrator = FlowCalibrator(dataclasses.replace(CONFIG, network="gated")).fit(ROWS)
    with pytest.warns(UserWarning, match="__main__:gated of this session.*a file of its own"):
        calibrator.save(tmp_path / "session")
    main.__file__ = "/somewhere/my_script.py"
    FlowCalibrator(GlowConfig(n_levels=2, network="gated")).fit(ROWS).save(tmp_path / "script")
    monkeypatch.delitem(NETWORKS, "gated")
    for name, advice in (("session", "put gated into a file"), ("script", "my_script.py")):
        with pytest.raises(ValueError, match=advice):
            FlowCalibrator.load(tmp_path / name)


@pytest.mark.parametrize("network", [network_with_a_variable, keras_network])
def test_a_networks_variable_outside_parameters_is_refused(network):
    with pytest.raises(ValueError, match=r"network: found the variable .*mine"):
        Glow(CONFIG, 8, seed=0, network=network)


def test_a_couplings_variable_outside_parameters_is_refused(registered):
    with pytest.raises(ValueError, match=r"network: found the variable .*mine"):
        Glow(dataclasses.replace(CONFIG, coupling="variable"), 8, seed=0)


def test_dropout_reaches_an_own_network_or_is_refused():
    config = dataclasses.replace(CONFIG, coupling_dropout=0.5)
    with pytest.raises(ValueError, match=r"coupling_dropout: found 0\.5"):
        Glow(config, 8, seed=0, network=linear_network)
    flow = Glow(config, 8, seed=0, network=dropping_network)
    dropped = [flow.bits_per_dim(ROWS, tf.constant(step)).numpy() for step in (0, 1)]
    assert not np.allclose(*dropped)


def test_an_own_coupling_takes_its_own_key(registered, tmp_path):
    file = tmp_path / "scaled.json"
    values = {"n_levels": 2, "coupling": "scaled", "coupling_scale": 2.0}
    file.write_text(json.dumps(values))
    calibrator = FlowCalibrator(str(file)).fit(ROWS)
    assert calibrator.flow_.levels[0][-1].scale == 2.0
    calibrator.save(tmp_path / "saved")
    assert read_calibration(tmp_path / "saved").config == calibrator.config_
    file.write_text(json.dumps(values | {"coupling_scale": -1.0}))
    with pytest.raises(ValueError, match="coupling_scale: found -1"):
        FlowCalibrator(str(file)).fit(ROWS)
    file.write_text(json.dumps(values | {"coupling_scale": "wide"}))
    with pytest.raises(ValueError, match=r"coupling_scale = 'wide': .*not supported"):
        FlowCalibrator(str(file)).fit(ROWS)
    file.write_text(json.dumps(values | {"coupling_sale": 1.0}))
    with pytest.raises(ValueError, match=r"unknown key 'coupling_sale'.*coupling_scale"):
        GlowConfig.load(file)


def test_a_flow_of_missing_code_names_the_registration(registered, tmp_path, monkeypatch):
    FlowCalibrator(dataclasses.replace(CONFIG, coupling="scaled")).fit(ROWS).save(tmp_path / "a")
    monkeypatch.delitem(COUPLINGS, "scaled")
    with pytest.raises(ValueError, match="ScaledCoupling registered it"):
        FlowCalibrator.load(tmp_path / "a")


def test_the_example_of_an_own_network_runs(tmp_path):
    command = [sys.executable, ROOT / "examples" / "own_network.py"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, last = (float(word) for word in done.stdout.split() if word[0].isdigit())
    assert last < first and (tmp_path / "residual_flow" / "calibration.npz").is_file()
