"""A SavedModel that needs nothing beside it and answers as the model it was made of.

What its signatures answer is checked in `test_session.py`, as a server runs them.
"""

import concurrent.futures
import copy
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.api import BertFlow
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.serving import DTYPES
from bert_flow_tf.serving.export import CHECKED_SENTENCES
from bert_flow_tf.serving.formats import SAVEDMODEL, export_path
from glow.config import GlowConfig
from glow.flow import Glow
from tests.glow.bijector_checks import perturb


def embeddings_of(path, sentences):
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    return served(sentences=tf.constant(sentences))["embedding"].numpy()


def message_of(kind, call, *arguments, **options):
    """The one line of the error, of just this kind, that the call raises."""
    with pytest.raises(UserError) as raised:
        call(*arguments, **options)
    assert type(raised.value) is kind, raised.value
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_next_version_is_one_above_the_highest(tmp_path):
    assert export_path(tmp_path / "new", SAVEDMODEL) == tmp_path / "new" / "1"
    for name in ("4", "10", "²", "latest"):
        (tmp_path / name).mkdir()
    assert export_path(tmp_path, SAVEDMODEL) == tmp_path / "11"


def test_signatures_take_and_give_what_they_promise(sts_version):
    def specs(values):
        return {name: (spec.dtype, spec.shape.as_list()) for name, spec in values.items()}

    found = {
        name: (specs(one.structured_input_signature[1]), specs(one.structured_outputs))
        for name, one in tf.saved_model.load(str(sts_version)).signatures.items()
    }
    text, embedding = (tf.string, [None]), {"embedding": (tf.float32, [None, 32])}
    ids = (tf.int32, [None, None])
    assert found == {
        "serving_default": ({"sentences": text}, embedding),
        "pooled": ({"sentences": text}, embedding),
        "tokens": ({"input_word_ids": ids, "input_mask": ids, "input_type_ids": ids}, embedding),
        "similarity": ({"sentence_a": text, "sentence_b": text}, {"cosine": (tf.float32, [None])}),
    }


def test_version_stays_unless_overwritten_by_one_of_the_options(sts_model, tmp_path):
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "saved_model.pb").write_text("old")
    message = message_of(UserError, sts_model.export, tmp_path, version=4)
    assert message == f"{tmp_path / '4'}: exists, expected a new folder, or overwrite=True"
    assert (tmp_path / "4" / "saved_model.pb").read_text() == "old"

    options = {"low_dim": 8, "max_seq_length": 4, "normalize": True}
    exported = sts_model.export(tmp_path, version=4, overwrite=True, **options)
    assert exported.path == tmp_path / "4"
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["4"]
    expected = sts_model.encode(["w1 w2", "", "W4,", "w5 w6"]).reshape(4, 8, -1).mean(axis=-1)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = embeddings_of(exported.path, ["w1 w2 w3", "", "W4, w5!", "w5 w6 w7 w8 w9 w10 w11 w12 w13"])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    description = json.loads((exported.path / "assets.extra" / "config.json").read_text())
    assert [description[name] for name in ("embedding_size", "max_seq_length", "normalized")] == [8, 4, True]


def test_two_exports_at_once_make_two_versions(sts_model, tmp_path):
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        made = list(threads.map(lambda _: sts_model.export(tmp_path).path, range(2)))
    assert sorted(made) == [tmp_path / "1", tmp_path / "2"]
    assert all((path / "assets.extra" / "tf_serving_warmup_requests").is_file() for path in made)


def test_bfloat16_halves_every_matrix_of_the_encoder(bfloat16_export):
    reader = tf.train.load_checkpoint(str(bfloat16_export.path / "variables" / "variables"))
    kept = [
        (shape, reader.get_variable_to_dtype_map()[name])
        for name, shape in reader.get_variable_to_shape_map().items()
        # The biases of the attention's heads, [2, 16], are no matrices.
        if name.startswith("encoder_variables/") and len(shape) > 1 and np.prod(shape) > 32
    ]
    assert ([64, 32], tf.bfloat16) in kept
    assert {dtype for _, dtype in kept} == {tf.bfloat16}
    # Six of each of three layers, three tables and the pooler: none is left behind as a constant of the graph.
    assert len(kept) == 22


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"low_dim": 5}, "low_dim: found 5, expected a divisor of the embedding size 32"),
        ({"max_seq_length": 2}, "max_seq_length: found 2, expected a whole number from 3 to "),
        ({"max_seq_length": 513}, "max_seq_length: found 513, expected a whole number from 3 to "),
        ({"dtype": "float16"}, "dtype: found float16, expected float32 or bfloat16"),
        ({"format": "tflite"}, "format: found 'tflite', expected one of"),
        ({"format": "sentence-transformers", "version": 1}, "version: found 1 with the format sentence-transformers"),
        ({"version": 0}, "version: found 0, expected a whole number from 1 to 2**63 - 1"),
        ({"version": 2**63}, "version: found 9223372036854775808, expected a whole number"),
        ({"overwrite": True}, "overwrite: missing the version"),
    ],
)
def test_option_that_does_not_fit_is_named(sts_model, tmp_path, options, line):
    assert message_of(ArgumentError, sts_model.export, tmp_path / "out", **options).startswith(line)
    assert not (tmp_path / "out").exists()


def test_export_reports_how_far_what_it_wrote_is_from_the_model(sts_model, bfloat16_export):
    # In bfloat16 the difference is a thousand times the rounding of float32, in which two calls may differ.
    live = sts_model.encode(CHECKED_SENTENCES)
    found = embeddings_of(bfloat16_export.path, CHECKED_SENTENCES)
    cosines = np.sum(found * live, axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(live, axis=1)
    assert bfloat16_export.max_difference == pytest.approx(np.abs(found - live).max(), rel=1e-3)
    assert bfloat16_export.max_value == pytest.approx(np.abs(live).max(), rel=1e-5)
    # A few roundings of float32; the cosine itself is 3e-6 below 1.
    assert bfloat16_export.min_cosine == pytest.approx(cosines.min(), rel=0, abs=3e-7)
    assert bfloat16_export.min_cosine < 1 - 1e-6


def flip_a_byte(path):
    (data,) = (path / "variables").glob("variables.data-*")
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0xFF
    data.write_bytes(content)


def scale_a_matrix(path, factor):
    """Writes the SavedModel's checkpoint again, in which the largest matrix, the encoder's word table, is scaled."""
    prefix = str(path / "variables" / "variables")
    reader = tf.train.load_checkpoint(prefix)
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    largest = max((name for name, value in tensors.items() if np.ndim(value) == 2), key=lambda name: tensors[name].size)
    tensors[largest] = (tensors[largest] * factor).astype(tensors[largest].dtype)
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=list(tensors), shape_and_slices=[""] * len(tensors), tensors=list(tensors.values())
    )


@pytest.fixture
def save_again(monkeypatch, tmp_path):
    """Function (version's folder, change): what `tf.saved_model.save` writes from now on is that version, changed."""

    def patch(version, change):
        def save(module, folder, **options):
            shutil.copytree(version, folder, dirs_exist_ok=True, ignore=lambda *_: ["assets.extra"])
            change(tmp_path / folder)

        monkeypatch.setattr(tf.saved_model, "save", save)

    return patch


@pytest.mark.parametrize(
    ("corrupt", "dtype", "line"),
    [
        (flip_a_byte, "float32", "cannot be loaded again"),
        (lambda path: scale_a_matrix(path, 1.01), "float32", "differ from the model by "),
        (lambda path: scale_a_matrix(path, -1), "bfloat16", "differ from the model by "),
    ],
)
def test_export_that_the_disk_changed_is_refused_and_leaves_nothing(
    sts_model, sts_version, bfloat16_export, save_again, tmp_path, corrupt, dtype, line
):
    save_again(sts_version if dtype == "float32" else bfloat16_export.path, corrupt)
    assert line in message_of(UserError, sts_model.export, tmp_path / "some" / "model", dtype=dtype)
    assert list(tmp_path.iterdir()) == []


def test_large_channel_does_not_hide_that_the_others_are_wrong(sts_model, save_again, tmp_path):
    large = copy.copy(sts_model)
    large.flow = Glow(sts_model.flow.config, sts_model.encoder.embedding_size, seed=0)
    large.flow.variables_by_path["revnet_0/revnet_step_0/actnorm/actnorm_center/b"].assign([1e6, *[0.0] * 31])
    save_again(large.export(tmp_path / "good").path, lambda path: scale_a_matrix(path, 1.01))
    assert "differ from the model by " in message_of(UserError, large.export, tmp_path / "bad")


@pytest.mark.parametrize("dtype", DTYPES)
def test_model_that_gives_no_finite_numbers_is_refused(sts_model, sts_version, save_again, tmp_path, dtype):
    save_again(sts_version, lambda path: None)
    broken = copy.copy(sts_model)
    broken.flow = Glow(sts_model.flow.config, sts_model.encoder.embedding_size, seed=0)
    broken.flow.trainable_variables[0].assign(broken.flow.trainable_variables[0] * np.nan)
    said = message_of(UserError, broken.export, tmp_path / "model", dtype=dtype)
    assert "differ from the model by nan" in said and "nothing was written" in said
    assert list(tmp_path.iterdir()) == []


def test_folder_holds_vocabulary_and_a_description_without_paths(sts_model, sts_version):
    assert (sts_version / "assets" / "vocab.txt").read_text().split("\n")[5] == "w0"
    description = json.loads((sts_version / "assets.extra" / "config.json").read_text())
    assert description["encoder_fingerprint"] == sts_model.source.fingerprint
    assert (description["sentence_embedding_type"], description["max_seq_length"]) == ("avg-last-2", 8)
    assert description["flow_config"]["n_levels"] == 3
    # So that it can be copied to a machine without the run and the encoder.
    place = str(sts_model.source.encoder_dir.parent).encode()
    assert not [path for path in sts_version.rglob("*") if path.is_file() and place in path.read_bytes()]


def test_encoder_without_flow_and_with_dropout_is_exported_without_either(small_encoder_dir, tmp_path):
    model = BertFlow.from_hub(str(small_encoder_dir), max_seq_length=10)
    found = embeddings_of(model.export(tmp_path).path, ["The cat sat.", "cats"])
    np.testing.assert_allclose(found, model.encode(["The cat sat.", "cats"]), rtol=0, atol=1e-6)


def test_version_is_whole_when_it_gets_its_name(bfloat16_export):
    """What a server that polls the folder sees first is all that it will ever see, warm-up requests included."""
    # A folder's own ctime changes when it is renamed, and not with the files in folders below it.
    renamed = bfloat16_export.path.stat().st_ctime_ns
    written = {path.name: path.stat().st_mtime_ns for path in bfloat16_export.path.rglob("*") if path.is_file()}
    assert {"saved_model.pb", "tf_serving_warmup_requests", "config.json"} < set(written)
    assert max(written.values()) <= renamed


def test_flow_of_a_kind_that_cannot_be_folded_is_served_as_it_is(sts_model, tmp_path):
    affine = copy.copy(sts_model)
    config = GlowConfig(n_levels=2, depth=1, coupling_width=4, coupling="affine", permutation=False)
    affine.flow = Glow(config, sts_model.encoder.embedding_size, seed=0)
    perturb(affine.flow.trainable_variables, seed=1)
    exported = affine.export(tmp_path / "affine")
    assert exported.max_difference <= 1e-5 * exported.max_value


def test_overwrite_replaces_nothing_but_an_export(sts_model, tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "thesis.txt").write_text("mine")
    for line in ("holds no saved_model.pb", "holds thesis.txt beside an export"):
        assert line in message_of(UserError, sts_model.export, tmp_path, version=1, overwrite=True)
        (tmp_path / "1" / "saved_model.pb").write_text("")
    assert (tmp_path / "1" / "thesis.txt").read_text() == "mine"
