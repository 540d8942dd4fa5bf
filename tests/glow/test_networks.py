"""Networks and couplings of one's own work, or are refused by name."""

import copy
import dataclasses
import functools
import importlib
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
from glow.coupling import AffineCoupling
from glow.saved import read_maps

pytestmark = pytest.mark.usefixtures("small_default_flow")

ROOT = pathlib.Path(__file__).parents[2]
SCALED = f"{__name__}:ScaledCoupling"
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


def with_network(network, config=CONFIG):
    return dataclasses.replace(config, network=network)


def test_an_own_network_is_trained_saved_and_loaded(tmp_path):
    config = with_network(linear_network)
    assert config.network == f"{__name__}:linear_network"
    calibrator = FlowCalibrator(config, epochs=3).fit(ROWS)
    kernels = [v for path, v in calibrator.flow_.variables_by_path.items() if "kernel" in path]
    fresh = Glow(config, 8, seed=calibrator.seed)
    assert len(kernels) == CONFIG.n_levels * CONFIG.depth
    for path, variable in fresh.variables_by_path.items():
        assert np.any(variable.numpy() != calibrator.flow_.variables_by_path[path].numpy()), path
    with pytest.raises(ValueError, match="not dense layers"):
        calibrator.flow_.dense_layers()
    calibrator.save(tmp_path / "saved")
    loaded = FlowCalibrator.load(tmp_path / "saved")
    assert loaded.config_ == config
    again = pickle.loads(pickle.dumps(calibrator))
    for one in (loaded, again, copy.deepcopy(calibrator)):
        np.testing.assert_array_equal(one.transform(ROWS), calibrator.transform(ROWS))
    np.testing.assert_allclose(
        calibrator.inverse_transform(loaded.transform(ROWS)), ROWS, atol=1e-3
    )


def _local(scale):
    """Return a network that has no path."""
    return lambda *arguments: linear_network(*arguments, scale=scale)


@pytest.mark.parametrize("kind", ["lambda", "partial", "session"])
def test_a_network_of_no_module_is_trained_and_not_saved(tmp_path, monkeypatch, kind):
    if kind == "session":
        main = types.ModuleType("__main__")
        exec(f"from {__name__} import linear_network as other", vars(main))
        exec("def mine(*arguments): return other(*arguments, scale=2.0)", vars(main))
        monkeypatch.setitem(sys.modules, "__main__", main)
        network, found = main.mine, "mine"
    elif kind == "lambda":
        network, found = _local(2.0), ".*_local.*lambda.*"
    else:
        network, found = functools.partial(linear_network, scale=2.0), ".*partial.*"
    config = with_network(network)
    assert (config == with_network(network)) and config != with_network(_local(2.0))
    calibrator = FlowCalibrator(config).fit(ROWS)
    twice = FlowCalibrator(dataclasses.replace(with_network(linear_network), own={"scale": 2.0}))
    expected = twice.fit(ROWS).transform(ROWS)
    for one in (calibrator, copy.deepcopy(calibrator)):
        np.testing.assert_array_equal(one.transform(ROWS), expected)
    json.dumps(config.to_dict())
    with pytest.raises(ValueError, match=f"^network: found {found}; put it into a module of its"):
        calibrator.save(tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("network", [network_with_a_variable, keras_network])
def test_a_networks_variable_outside_parameters_is_refused(network):
    with pytest.raises(ValueError, match=r"network: found the variable .*mine"):
        Glow(with_network(network), 8, seed=0)


def test_a_couplings_variable_outside_parameters_is_refused():
    with pytest.raises(ValueError, match=r"network: found the variable .*mine"):
        Glow(dataclasses.replace(CONFIG, coupling=CouplingWithAVariable), 8, seed=0)


def test_dropout_reaches_an_own_network_or_is_refused():
    config = dataclasses.replace(CONFIG, coupling_dropout=0.5)
    with pytest.raises(ValueError, match=r"coupling_dropout: found 0\.5"):
        Glow(with_network(linear_network, config), 8, seed=0)
    flow = Glow(with_network(dropping_network, config), 8, seed=0)
    dropped = [flow.bits_per_dim(ROWS, tf.constant(step)).numpy() for step in (0, 1)]
    assert not np.allclose(*dropped)


def test_an_own_coupling_takes_its_own_key(tmp_path):
    file = tmp_path / "scaled.json"
    values = {"n_levels": 2, "coupling": SCALED, "coupling_scale": 2.0}
    file.write_text(json.dumps(values))
    calibrator = FlowCalibrator(str(file)).fit(ROWS)
    assert calibrator.flow_.levels[0][-1].scale == 2.0
    calibrator.save(tmp_path / "saved")
    assert read_maps(tmp_path / "saved")[0].config == calibrator.config_
    file.write_text(json.dumps(values | {"coupling_scale": -1.0}))
    with pytest.raises(ValueError, match="coupling_scale: found -1"):
        FlowCalibrator(str(file)).fit(ROWS)
    file.write_text(json.dumps(values | {"coupling_scale": "wide"}))
    with pytest.raises(ValueError, match=r"coupling_scale = 'wide': .*not supported"):
        FlowCalibrator(str(file)).fit(ROWS)
    file.write_text(json.dumps(values | {"coupling_sale": 1.0}))
    with pytest.raises(ValueError, match=r"unknown key 'coupling_sale'.*coupling_scale"):
        GlowConfig.load(file)


_CODE = """
from glow.coupling import AffineCoupling

def doubled(parameters, inputs, outputs):
    kernel = parameters.normal("kernel", [inputs, outputs], stddev=0.1)
    return lambda x: FACTOR * (x @ kernel)

class Own(AffineCoupling):
    pass
"""


def test_a_folder_loads_only_where_its_code_is_imported(tmp_path, monkeypatch):
    file = tmp_path / "own_code.py"
    file.write_text(_CODE.replace("FACTOR", "2.0"))
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("own_code")
    config = GlowConfig(n_levels=2, coupling=own.Own, network=own.doubled)
    FlowCalibrator(config).fit(ROWS).save(tmp_path / "saved")
    saved = config.recipe
    assert set(saved["code"]) == {"own_code:Own", "own_code:doubled"}
    program = "import sys; from glow import FlowCalibrator, GlowConfig; import own_code\n"
    program += "print(type(FlowCalibrator.load('saved').flow_.levels[0][-1]).__name__)"
    environment = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "Own\n", done.stderr
    # Without the import, the configuration can be read and shown, but the flow has no code.
    del sys.modules["own_code"]
    assert GlowConfig(**config.to_dict()) == config
    with pytest.raises(ValueError, match="coupling: found own_code:Own, whose module is not"):
        FlowCalibrator.load(tmp_path / "saved")
    # The code has changed.
    file.write_text(_CODE.replace("FACTOR", "3.00"))
    importlib.import_module("own_code")
    assert config.recipe["code"].keys() == saved["code"].keys()
    assert not set(config.recipe["code"].values()) & set(saved["code"].values())
    with pytest.warns(UserWarning, match="^own_code: the code has changed since"):
        FlowCalibrator.load(tmp_path / "saved")
    del sys.modules["own_code"]


def test_the_example_of_an_own_network_runs(tmp_path):
    command = [sys.executable, ROOT / "examples" / "own_network.py"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, last = (float(word) for word in done.stdout.split() if word[0].isdigit())
    assert last < first and (tmp_path / "residual_flow" / "calibration.npz").is_file()
