"""A SavedModel needs nothing else and equals its model.

`test_session.py` tests the answers of its signatures, as a server runs them.
"""

import concurrent.futures
import copy
import json
import pathlib
import shutil
import threading
import warnings

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.api import BertFlow
from bert_flow_tf.common import atomic
from bert_flow_tf.export import export, served_model
from bert_flow_tf.export.export import CHECKED_SENTENCES
from bert_flow_tf.export.formats import ExportSettings
from glow.config import GlowConfig
from glow.flow import Glow
from glow.maps import AffineMap
from tests.glow.bijector_checks import perturb
from tests.refusals import user_error


def embeddings_of(path, sentences):
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    return served(sentences=tf.constant(sentences))["embedding"].numpy()


def test_versions_are_numbered_also_of_two_exports_at_once(sts_model, tmp_path, monkeypatch):
    waiting = threading.Event()
    # The second export logs that it waits.
    monkeypatch.setattr(atomic.logger, "info", lambda *_: waiting.set())

    def write(model, described, folder, texts):
        assert waiting.wait(60)
        (folder / "saved_model.pb").touch()

    monkeypatch.setattr(served_model, "write_savedmodel", write)
    for name in ("4", "10", "²", "latest"):
        (tmp_path / name).mkdir()
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        made = list(threads.map(lambda _: sts_model.export(tmp_path).path, range(2)))
    assert sorted(made) == [tmp_path / "11", tmp_path / "12"]


def test_a_savedmodels_default_prompt_is_warned_of(sts_model, tmp_path, monkeypatch, recwarn):
    def write(model, described, folder, texts):
        (folder / "saved_model.pb").touch()

    monkeypatch.setattr(served_model, "write_savedmodel", write)
    model = copy.copy(sts_model)
    # This name may have no text.
    model.default_prompt_name = "query"
    model.export(tmp_path)
    assert not [one for one in recwarn if "prompts" in str(one.message)]
    model.prompts = {"query": "the "}
    with pytest.warns(UserWarning, match="savedmodel has no prompts: put 'the ' before each text"):
        model.export(tmp_path)


def test_a_version_is_replaced_with_overwrite_alone(small_encoder_dir, tmp_path, caplog):
    # An encoder with dropout, and a flow that cannot be folded.
    model = BertFlow.from_hub(small_encoder_dir, max_seq_length=10)
    # Another encoder's table of types may have a name that is not known.
    model.encoder.num_types = None
    config = GlowConfig(n_levels=2, depth=1, coupling_width=4, coupling="affine", permutation=False)
    model.flow = Glow(config, model.encoder.embedding_size, seed=0)
    perturb(model.flow.trainable_variables, seed=1)
    model = copy.copy(model)
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "saved_model.pb").write_text("old")
    with user_error(f"{tmp_path / '4'}: exists", "overwrite=True"):
        model.export(tmp_path, version=4)
    exported = model.export(
        tmp_path, version=4, overwrite=True, low_dim=4, max_seq_length=4, normalize=True
    )
    assert exported.path == tmp_path / "4"
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["4"]
    expected = model.encode(["The cat", "", "cats"]).reshape(3, 4, -1).mean(axis=-1)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = embeddings_of(exported.path, ["The cat sat.", "", "cats"])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert "custom gradients" not in caplog.text


def test_bfloat16_halves_every_matrix_and_its_difference_is_told(sts_model, tmp_path):
    exported = sts_model.export(tmp_path / "sts", dtype="bfloat16")
    reader = tf.train.load_checkpoint(str(exported.path / "variables" / "variables"))
    kept = [
        (shape, reader.get_variable_to_dtype_map()[name])
        for name, shape in reader.get_variable_to_shape_map().items()
        # The biases of the attention's heads, [2, 16], are no matrices.
        if name.startswith("encoder_variables/") and len(shape) > 1 and np.prod(shape) > 32
    ]
    assert ([64, 32], tf.bfloat16) in kept
    assert {dtype for _, dtype in kept} == {tf.bfloat16}
    # Six matrices per layer, three tables and the pooler must be variables, not constants of the
    # graph.
    assert len(kept) == 22
    # The difference is a thousand times the rounding of float32, in which two calls may differ.
    live, found = (
        sts_model.encode(CHECKED_SENTENCES),
        embeddings_of(exported.path, CHECKED_SENTENCES),
    )
    cosines = (
        np.sum(found * live, axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(live, axis=1)
    )
    assert exported.max_difference == pytest.approx(np.abs(found - live).max(), rel=1e-3)
    assert exported.max_value == pytest.approx(np.abs(live).max(), rel=1e-5)
    # A few roundings of float32; the cosine itself is 3e-6 below 1.
    assert exported.min_cosine == pytest.approx(cosines.min(), rel=0, abs=3e-7)
    assert exported.min_cosine < 1 - 1e-6


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"max_seq_length": 2}, "max_seq_length: found 2"),
        ({"max_seq_length": 513}, "max_seq_length: found 513"),
        ({"dtype": "float16"}, "dtype: found float16"),
        ({"version": 0}, "version: found 0"),
        ({"version": 2**63}, "version: found 9223372036854775808"),
    ],
)
def test_an_option_that_does_not_fit_is_named(sts_model, tmp_path, options, found):
    with user_error(found):
        sts_model.export(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


LIVE = np.array([[1e6, 1.0, -1.0], [-1e6, 0.5, 2.0]], np.float32)


@pytest.mark.parametrize(
    ("found", "dtype", "is_close"),
    [
        (LIVE + 1e-5, "float32", True),
        # A large channel does not hide that another is wrong.
        (LIVE * [1, 1.01, 1], "float32", False),
        (LIVE * np.nan, "float32", False),
        (LIVE * 1.01, "bfloat16", True),
        (-LIVE, "bfloat16", False),
        (LIVE * np.nan, "bfloat16", False),
    ],
)
def test_files_that_differ_from_the_model_are_an_error(found, dtype, is_close, tmp_path):
    if is_close:
        assert export.checked_export(tmp_path, found, LIVE, 1e-4, dtype).path == tmp_path
    else:
        with user_error(f"{tmp_path}: the written files differ from the model by "):
            export.checked_export(tmp_path, found, LIVE, 1e-4, dtype)


def test_int8_is_judged_on_average_and_its_smallest_is_said(tmp_path):
    live = np.eye(8, dtype=np.float32)
    found = live.copy()
    found[3, 4] = 0.5
    exported = export.checked_export(tmp_path, found, live, 1e-3, "int8")
    assert exported.min_cosine == pytest.approx(1 / np.sqrt(1.25))
    assert exported.mean_cosine == pytest.approx((7 + 1 / np.sqrt(1.25)) / 8)
    assert exported.texts == 8
    with user_error("cosine 0.8944", "8 texts", "expected a cosine of 0.99 or more"):
        export.checked_export(tmp_path, found, live, 1e-3, "bfloat16")
    with user_error("expected a mean cosine of 0.95 or more"):
        export.checked_export(tmp_path, np.roll(live, 1, axis=0), live, 1e-3, "int8")


def test_a_damaged_savedmodel_is_named_and_removed(sts_model, sts_version, tmp_path, monkeypatch):
    def save(module, folder, **options):
        shutil.copytree(sts_version, folder, dirs_exist_ok=True, ignore=lambda *_: ["assets.extra"])
        with open(f"{folder}/variables/variables.data-00000-of-00001", "r+b") as data:
            data.seek(1000)
            data.write(bytes(8))

    monkeypatch.setattr(tf.saved_model, "save", save)
    with user_error("cannot be loaded again"):
        sts_model.export(tmp_path / "some" / "model")
    assert list(tmp_path.iterdir()) == []


def test_folder_holds_a_description_and_no_paths(sts_model, sts_version):
    assert (sts_version / "assets" / "vocab.txt").read_text().split("\n")[5] == "w0"
    description = json.loads((sts_version / "assets.extra" / "export.json").read_text())
    record = description["model"]
    assert record["encoder"]["fingerprint"] == sts_model.source.fingerprint
    assert (record["pooling"], description["max_seq_length"]) == ("avg-last-2", 8)
    assert record["flow"]["config"]["n_levels"] == 2
    # So that it can be copied to a machine without the run and the encoder.
    place = str(pathlib.Path(sts_model.source.bert_hub).parent).encode()
    assert not [
        path for path in sts_version.rglob("*") if path.is_file() and place in path.read_bytes()
    ]


def test_the_tolerance_of_a_map_with_huge_columns_is_finite(small_encoder_dir):
    model = BertFlow.from_hub(small_encoder_dir)
    model.flow = AffineMap(8, matrix=1e30 * np.eye(8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = export.tolerance_of(model.maps, ExportSettings())
    np.testing.assert_allclose(found, 1e24, rtol=1e-6)
