"""Held-out sentences, progress bars and methods of a fit."""

import json
import zlib

import numpy as np
import pytest
import tensorflow as tf
from sklearn.decomposition import PCA, FastICA, KernelPCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from bert_flow_tf import FlowCalibrator, calibrate, compare
from bert_flow_tf.calibration import learning
from bert_flow_tf.calibration.affine import Whitening, affine_form
from bert_flow_tf.calibration.methods import find_method, find_methods
from bert_flow_tf.calibration.settings import FitSettings
from glow.coupling import AffineCoupling
from tests.refusals import user_error

pytestmark = pytest.mark.usefixtures("small_default_flow")

SENTENCES = [f"sentence {i}" for i in range(200)] * 2


def hold_out(sentences, fraction, batch_size=64, seed=1):
    settings = FitSettings(dev_fraction=fraction, batch_size=batch_size, seed=seed)
    kept, held_out = learning.hold_out(sentences, settings)
    return [sentences[row] for row in kept], [sentences[row] for row in held_out]


def numbers(texts, label=""):
    """Return embeddings [n, 8] that depend on each text alone."""
    seeds = [zlib.crc32(text.encode()) for text in texts]
    mixing = np.random.default_rng(99).normal(size=[8, 8])
    rows = [np.random.default_rng(seed).normal(size=8) for seed in seeds]
    return (np.stack(rows) @ mixing + 2).astype(np.float32)


def test_a_share_of_the_different_sentences_is_held_out():
    kept, held_out = hold_out(SENTENCES, 0.1)
    # A tenth of the 200 different ones is less than the least share, a fifth.
    assert len(held_out) == len(set(held_out)) == 40
    assert kept == [sentence for sentence in SENTENCES if sentence not in held_out]
    assert hold_out(SENTENCES, 0.1) == (kept, held_out)
    assert hold_out(SENTENCES, 0.1, seed=2)[1] != held_out
    for count, held in ((30_000, 1000), (8000, 400), (2000, 200), (500, 100)):
        assert len(hold_out([str(i) for i in range(count)], 0.05)[1]) == held


def test_nothing_is_held_out_where_that_says_little():
    # It is not asked for; it would leave less than a step; it would be too few.
    for sentences, fraction, batch_size in (
        (SENTENCES, 0, 64),
        (SENTENCES, 0.9, 64),
        (SENTENCES[:49], 0.05, 8),
    ):
        assert hold_out(sentences, fraction, batch_size) == (sentences, [])


def learned(data, method, encode=numbers, pairs=None, **settings):
    """Return what the learner makes of sentences or rows."""
    measuring = learning.Measuring(encode=encode, pairs=pairs)
    return learning.learn(data, find_method(method), FitSettings(**settings), measuring)


def test_each_progress_bar_says_what_is_encoded():
    labels = []

    def encode(texts, label):
        labels.append(label)
        return np.random.default_rng(len(texts)).normal(size=[len(texts), 8])

    pairs = SENTENCES[:20], SENTENCES[20:40], list(range(20))
    learned(SENTENCES, "whitening", encode=encode, pairs=pairs)
    # The held-out sentences are among the encoded ones; only their mixtures are new.
    assert labels == ["sentences", "pairs", "pairs", "held out"]


def test_a_map_is_measured_without_the_held_out_sentences_and_learned_with_them():
    fitted = learned(SENTENCES, "whitening")
    u = numbers(SENTENCES)
    expected = Whitening().fit(u).transform(u)
    (calibration,) = fitted.maps
    np.testing.assert_allclose(calibration.forward(u), expected, rtol=0, atol=1e-5)
    assert fitted.record.training.settings == {
        "sentences": 400,
        "held_out": 40,
        "method": "whitening",
    }
    without = learned(SENTENCES, "whitening", dev_fraction=0)
    assert without.history.change is None
    np.testing.assert_array_equal(without.maps[0].forward(u), calibration.forward(u))


def test_a_flow_keeps_its_held_out_losses():
    model = calibrate(numbers, SENTENCES)
    losses = model.history_.held_out_losses
    assert len(losses) > 2
    assert min(losses, key=losses.get) == len(model.history_.losses)
    assert "array" not in repr(model.history_)


@pytest.mark.parametrize("method", [PCA(5, whiten=True), PCA(5)])
def test_an_affine_transformer_of_scikit_learn_is_a_calibration_with_dense_layers(method, tmp_path):
    model = calibrate(numbers, SENTENCES, method=method, dev_fraction=0)
    u = numbers(SENTENCES[:30])
    expected = PCA(**method.get_params()).fit(numbers(SENTENCES)).transform(u)
    np.testing.assert_allclose(model.transform(u), expected, rtol=0, atol=2e-5)
    path = model.export(tmp_path / "map.npz")
    layers = np.load(path)
    assert sorted(layers.files) == ["bias_0", "kernel_0", "slope_0"]
    z = u @ layers["kernel_0"] + layers["bias_0"]
    np.testing.assert_allclose(z, expected, rtol=0, atol=2e-5)
    assert "PCA" in model.record.method


def test_another_transformer_may_have_fewer_channels():
    model = calibrate(numbers, SENTENCES, method=KernelPCA(3, kernel="rbf"), dev_fraction=0)
    assert model.calibration.output_size == 3
    assert model.encode(SENTENCES[:5]).shape == (5, 3)
    assert model.calibration.forward(tf.constant(numbers(SENTENCES[:5]))).shape == (5, 3)
    with user_error("found 20 channels of KernelPCA", "at most the 8 before it"):
        calibrate(numbers, SENTENCES, method=KernelPCA(20, kernel="rbf"))


def test_another_transformer_calibrates_but_is_not_exported(tmp_path):
    with pytest.warns(UserWarning, match="QuantileTransformer.*neither saved nor exported"):
        model = calibrate(
            numbers, SENTENCES, method=QuantileTransformer(n_quantiles=50), dev_fraction=0
        )
    u = numbers(SENTENCES[:30])
    own = QuantileTransformer(n_quantiles=50).fit(numbers(SENTENCES))
    np.testing.assert_allclose(model.transform(u), own.transform(u), rtol=0, atol=1e-6)
    for write in (
        lambda: model.export(tmp_path / "map.onnx"),
        lambda: model.save(tmp_path / "map"),
    ):
        with user_error("found QuantileTransformer", "not affine"):
            write()
    assert not list(tmp_path.iterdir())
    model.maps = model.maps
    assert model.record.method == "transformer"


def test_the_methods_of_compare_are_one_argument():
    settings = FitSettings(method="whitening")
    with user_error("settings: found the method whitening, expected the names in methods"):
        compare(numbers, SENTENCES, ["sn"], settings=settings)


def test_a_channel_that_hardly_varies_keeps_a_transformer_as_it_is():
    u = np.random.default_rng(3).normal(size=(60, 4)) + 3
    u[:, 1] *= 1e-33
    scaler = StandardScaler().fit(u)
    mean, matrix = affine_form(scaler, u)
    np.testing.assert_allclose((u - mean) @ matrix, scaler.transform(u), rtol=0, atol=1e-9)


@pytest.mark.parametrize("deviation", [1e-8, 1e-9])
def test_a_pipeline_is_affine_beside_a_channel_that_hardly_varies(deviation):
    u = np.random.default_rng(3).normal(size=(60, 8)) + 3
    u[:, 1] = deviation * u[:, 1] + 0.01
    u = u.astype(np.float32)
    pipeline = make_pipeline(StandardScaler(), PCA(3, whiten=True)).fit(u)
    mean, matrix = affine_form(pipeline, u)
    # In float32, scikit-learn rounds the mean, which moves such a channel.
    expected = pipeline.transform(u.astype(np.float64))
    np.testing.assert_allclose((u - mean) @ matrix, expected, rtol=0, atol=1e-5)


def ica():
    """Make a method of one's own, whose name is `module:name`."""
    return FastICA(4, random_state=0)


OWN = f"{__name__}:ica"


def test_own_methods_stand_beside_named_ones():
    flow = FlowCalibrator(epochs=2, batch_size=16)
    found = compare(numbers, SENTENCES, [OWN, PCA(3), flow])
    assert [row.method for row in found.rows] == ["none", OWN, "PCA(n_components=3)", repr(flow)]
    # The witness was not studied on a method of one's own.
    assert not find_method(OWN).has_witness and find_method("whitening-3").has_witness
    model = calibrate(numbers, SENTENCES, method=flow)
    assert model.record.training.settings["epochs"] == 2
    assert model.record.method == "flow"
    for method, said in (("ica", "'ica'"), (7, "fit and transform"), (PCA, "fit and transform")):
        with user_error("method: found", said):
            calibrate(numbers, SENTENCES, method=method)
    for path in ("no_such_module:ica", f"{__name__}:no_such_name", f"{__name__}:learned"):
        with user_error(f"method: {path}: "):
            calibrate(numbers, SENTENCES, method=path)


def test_a_long_pipeline_has_a_short_label_and_a_key_is_one():
    pipelines = [make_pipeline(StandardScaler(), PCA(k, whiten=True)) for k in (3, 4)]
    labels = [one.label for one in find_methods([*pipelines, PCA(3), "sn", "sn"])]
    short = "StandardScaler+PCA"
    assert labels == [short, f"{short} (2)", "PCA(n_components=3)", "sn"]
    assert "n_components=4" in find_methods(pipelines)[1].name
    found = compare(numbers, SENTENCES, {"my pca": pipelines[0], "scaled": "sn"})
    assert [row.method for row in found.rows] == ["none", "my pca", "scaled"]


class Bounded(AffineCoupling):
    def __init__(self, network, dtype=tf.float32, bound=1.0):
        super().__init__(network, dtype)
        assert bound > 0


def test_a_configuration_that_its_own_check_refuses_is_named(tmp_path):
    file = tmp_path / "bounded.json"
    config = {"n_levels": 2, "coupling": f"{__name__}:Bounded", "bound": "wide"}
    file.write_text(json.dumps(config))
    with user_error(f"fit: {file}: bound = 'wide': '>' not supported"):
        calibrate(numbers, SENTENCES, flow_model_config=file)


def test_a_metric_without_pairs_is_an_error():
    for call in (calibrate, compare):
        with user_error("metric: found auc without pairs"):
            call(numbers, SENTENCES, metric="auc")


def test_embeddings_that_do_not_vary_are_an_error():
    with user_error("fit: found embeddings that do not vary"):
        learned(
            SENTENCES, "soft-whitening-0.1", encode=lambda texts, label: np.ones([len(texts), 8])
        )
