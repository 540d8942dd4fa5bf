"""A saved model is whole and needs nothing else."""

import json
import shutil
from copy import deepcopy

import numpy as np
import pytest

from bert_flow_tf import BertFlow
from tests.bert_flow_tf import small_runs
from tests.refusals import user_error

pytestmark = pytest.mark.usefixtures("small_default_flow")

SENTENCES = ["w1 w2 w3", "w4", "w5 w6 w7 w8", ""]


@pytest.fixture(scope="module")
def model(tiny_encoder_dir, tmp_path_factory):
    """The golden BERT with a small flow; its encoder folder is deleted."""
    folder = shutil.copytree(tiny_encoder_dir, tmp_path_factory.mktemp("gone") / "tiny bert")
    path = small_runs.small_flow_file(tmp_path_factory.mktemp("flow"))
    sentences = [f"w{i} w{i + 1}" for i in range(16)]
    return BertFlow.from_hub(str(folder), pooling="avg-last-2", max_seq_length=8).fit(
        sentences, epochs=1, batch_size=8, learning_rate=0.01, flow_model_config=path
    )


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    path = model.save(tmp_path_factory.mktemp("saved") / "my model")
    shutil.rmtree(model.source.bert_hub)
    return path


@pytest.fixture
def copy(saved, tmp_path):
    """A copy of the folder to break."""
    return shutil.copytree(saved, tmp_path / "copy")


def test_saved_model_gives_the_same_bits_without_its_encoder(model, copy, monkeypatch):
    # A folder is no known encoder, whatever its name.
    monkeypatch.chdir(copy.parent)
    loaded = BertFlow.from_pretrained(copy.rename("demo"))
    np.testing.assert_array_equal(loaded.encode(SENTENCES), model.encode(SENTENCES))
    np.testing.assert_array_equal(loaded.log_prob(SENTENCES), model.log_prob(SENTENCES))
    assert loaded.source.fingerprint == model.source.fingerprint
    assert (loaded.sentence_embedding_type, loaded.max_seq_length) == ("avg-last-2", 8)


def test_losses_are_saved_with_the_model_and_loaded(model, saved, tmp_path):
    loaded = BertFlow.from_pretrained(saved)
    assert len(model.history_.losses) == 2
    np.testing.assert_array_equal(loaded.history_.losses, model.history_.losses)
    again = loaded.save(tmp_path / "again")
    assert (again / "losses.json").read_bytes() == (saved / "losses.json").read_bytes()
    (again / "losses.json").unlink()
    assert BertFlow.from_pretrained(again).history_ is None


def test_card_and_configuration_say_what_it_is(saved, caplog):
    card, config = (saved / "README.md").read_text(), (saved / "bert_flow.json").read_text()
    for said in (
        "library_name: bert-flow-tf\n",
        "\n# my model\n",
        "tiny bert",
        "`avg-last-2`",
        "| sentences | 16 |",
    ):
        assert said in card, said
    assert str(saved.parents[1]) not in card + config
    assert json.loads(config)["model"]["flow"]["training"]["settings"]["learning_rate"] == 0.01
    # The encoder of a model is taken without its flow, and a warning says so.
    assert BertFlow.from_hub(saved, max_seq_length=8).flow is None
    assert str(saved) in caplog.text


def test_trained_encoder_is_saved_with_its_weights(tiny_encoder_dir, tmp_path):
    model = deepcopy(BertFlow.from_hub(str(tiny_encoder_dir), max_seq_length=8))
    for variable in model.encoder.network.variables_by_name.values():
        variable.assign(variable * 1.01)
    model.encoder.trained = True
    loaded = BertFlow.from_pretrained(model.save(tmp_path / "saved"))
    np.testing.assert_allclose(loaded.encode(SENTENCES), model.encode(SENTENCES), rtol=0, atol=1e-6)
    assert "fine-tuned" in (tmp_path / "saved" / "README.md").read_text()


def test_nothing_but_a_saved_model_is_replaced(copy, saved):
    model = BertFlow.from_pretrained(saved)
    (copy / "calibration.npz").unlink()
    model.save(copy, overwrite=True)
    assert (copy / "calibration.npz").is_file()
    (copy / "notes.txt").write_text("mine")
    for overwrite in (False, True):
        with user_error("notes.txt" if overwrite else "copy: exists"):
            model.save(copy, overwrite=overwrite)


def test_other_configurations_and_other_folders_are_named(copy):
    config = json.loads((copy / "bert_flow.json").read_text())
    (copy / "calibration.npz").unlink()
    with user_error("calibration.npz"):
        BertFlow.from_pretrained(copy)
    (copy / "bert_flow.json").write_text(json.dumps(config | {"format_version": 99}))
    with user_error("bert_flow.json: found format_version 99"):
        BertFlow.from_pretrained(copy)
    (copy / "bert_flow.json").unlink()
    with user_error(f"{copy}: "):
        BertFlow.from_pretrained(copy)


def test_a_run_with_a_pooling_that_is_unknown_names_itself(sts_run, tmp_path):
    run = shutil.copytree(sts_run, tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    config["model"] |= {"pooling": "my_poolings:mine-2"}
    (run / "config.json").write_text(json.dumps(config))
    with user_error(f"{run}: pooling: found my_poolings:mine, whose", "give --code FILE.py"):
        BertFlow.load(run)
