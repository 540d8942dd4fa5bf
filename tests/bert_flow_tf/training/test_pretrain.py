"""Masked language modelling is the same on replicas and after a signal."""

import errno
import functools
import json
import pathlib
import shutil
import signal

import numpy as np
import pytest
import safetensors.numpy

from bert_flow_tf import cli
from bert_flow_tf.api import BertFlow
from bert_flow_tf.encoder.source import encoder_record, resolve_encoder
from bert_flow_tf.training import pretrain as pretraining
from bert_flow_tf.training.devices import configure_devices
from bert_flow_tf.training.run_folder import pretraining_folder, remove_checkpoints
from bert_flow_tf.training.settings import PretrainSettings
from tests.bert_flow_tf import small_runs
from tests.refusals import user_error

SENTENCES = [
    f"{a} {b} {c} ."
    for a in ("The", "the")
    for b in ("cat", "cats")
    for c in ("sat", "cat", "the", ". .")
]
# Of the encoder with dropout .5, which is drawn again by every sentence's number.
SETTINGS = {
    "steps": 10,
    "num_warmup_steps": 2,
    "train_batch_size": 8,
    "max_seq_length": 9,
    "learning_rate": 0.01,
    "dev_fraction": 0.2,
    "save_checkpoints_steps": 5,
    # So that two halves of a batch have different numbers of predictions.
    "masked_lm_prob": 0.4,
}


def run(source, out, replicas=0, report=None, sentences=SENTENCES, shows_bar=None, **changes):
    """Results of a run; `report` takes the lines on stderr."""
    devices = functools.partial(configure_devices, num_logical_cpus=replicas)
    with pytest.MonkeyPatch.context() as patch:
        if report:
            patch.setattr(pretraining.tqdm, "write", lambda line, file: report(line))
        patch.setattr(pretraining, "configure_devices", devices)
        settings = PretrainSettings(**SETTINGS | changes)
        return pretraining.pretrain(sentences, source, out, settings, show_progress_bar=shows_bar)


def weights(out):
    return safetensors.numpy.load_file(out / "model.safetensors")


@pytest.fixture(scope="module")
def whole(small_source, tmp_path_factory):
    """Results and encoder folder of a run that nobody interrupted."""
    out = tmp_path_factory.mktemp("whole") / "encoder"
    return run(small_source, out), out


def test_the_encoder_learns_and_its_pooler_stays(whole, small_source, small_encoder_dir):
    results, out = whole
    assert results.steps == 10 and list(results.dev_losses) == [0, 5, 10]
    before, after = weights(small_encoder_dir), weights(out)
    same = [name for name, value in before.items() if np.array_equal(value, after[name])]
    assert before.keys() == after.keys() and len(same) == 2
    assert len(small_runs.logged(pretraining_folder(out), "dev_loss")) == 3
    assert json.loads((out / "source.json").read_text())["started_from"] == small_source.fingerprint
    learned = resolve_encoder(bert_hub=str(out))
    assert learned.fingerprint != small_source.fingerprint
    # Results on it and the model card say what it learned.
    assert encoder_record(learned).fine_tuning == results.model.encoder.fine_tuning


def test_replicas_of_one_global_batch_learn_the_same(whole, small_source, tmp_path, capsys):
    results, out = whole
    on_2 = run(small_source, tmp_path / "on_2", replicas=2, shows_bar=True)
    assert "10/10 [" in capsys.readouterr().err
    assert on_2.model.encoder.fine_tuning == results.model.encoder.fine_tuning
    for name in ("loss", "grad_norm"):
        # The last step is logged.
        (one,), (two,) = (
            small_runs.logged(pretraining_folder(folder), name)
            for folder in (out, tmp_path / "on_2")
        )
        assert two == pytest.approx(one, rel=1e-5)
    assert on_2.dev_losses == pytest.approx(results.dev_losses, abs=1e-5)
    for name, value in weights(tmp_path / "on_2").items():
        np.testing.assert_allclose(value, weights(out)[name], rtol=0, atol=1e-5, err_msg=name)


def test_interrupted_twice_it_ends_in_the_same_bits(whole, small_source, tmp_path, monkeypatch):
    results, out = whole
    again, said = tmp_path / "encoder", []
    with pytest.raises(KeyboardInterrupt):
        run(
            small_source,
            again,
            report=lambda line: line.startswith("step 5") and signal.raise_signal(signal.SIGTERM),
        )
    assert not again.exists()

    def write(*arguments):
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch, user_error(str(again)):
        patch.setattr(pretraining, "write_encoder", write)
        run(small_source, again, report=said.append)
    assert [line.partition(":")[0] for line in said] == ["step 10 of 10"]
    # Only the folder is left to write.
    resumed = run(small_source, again, report=said.append)
    assert len(said) == 1 and resumed.dev_losses == results.dev_losses
    for name, value in weights(again).items():
        np.testing.assert_array_equal(value, weights(out)[name], err_msg=name)
    names = {
        path.name for path in pretraining_folder(again).iterdir() if "tfevents" not in path.name
    }
    assert names == {"config.json", "dev_losses.json", "train_results.json"}


def test_a_run_of_other_settings_is_kept_without_overwrite(
    whole, small_source, small_encoder_dir, tmp_path, capsys
):
    _, out = whole
    with user_error(f"{out}: exists"):
        run(small_source, out)
    copy = tmp_path / "encoder"
    shutil.copytree(pretraining_folder(out), pretraining_folder(copy))
    with user_error("seed is 1234, not 5"):
        run(small_source, copy, seed=5)
    with user_error("found a finished run without its checkpoint"):
        run(small_source, copy)
    shutil.copytree(out, copy)
    started = BertFlow.from_hub(small_encoder_dir, pooling="cls", max_seq_length=9)
    capsys.readouterr()
    model = started.pretrain(
        SENTENCES, copy, PretrainSettings(**SETTINGS | {"seed": 5, "steps": 3}), overwrite=True
    )
    assert "step" not in capsys.readouterr().err
    assert json.loads((copy / "source.json").read_text())["training"]["seed"] == 5
    assert (model.sentence_embedding_type, model.max_seq_length, model.source.bert_hub) == (
        "cls",
        9,
        str(copy),
    )
    assert np.abs(model.encode("the cat") - started.encode("the cat")).max() > 1e-2


def test_one_sentence_has_no_dev_loss(small_source, tmp_path):
    assert run(small_source, tmp_path / "one", sentences=["the cat"], steps=3).dev_losses == {}


def test_a_checkpoint_is_removed_with_its_index_first(tmp_path, monkeypatch):
    names = [
        f"model.ckpt-{step}.{end}" for step in (4, 9) for end in ("data-00000-of-00001", "index")
    ]
    for name in names:
        (tmp_path / name).touch()
    removed, unlink = [], pathlib.Path.unlink
    monkeypatch.setattr(
        pathlib.Path, "unlink", lambda path: (removed.append(path.suffix), unlink(path))
    )
    remove_checkpoints(tmp_path)
    assert removed[:2] == [".index"] * 2 and not list(tmp_path.iterdir())


def test_a_refused_command_clears_what_a_kill_left(whole, tmp_path):
    """The earlier command was killed while it removed its checkpoints."""
    _, out = whole
    copy = tmp_path / "encoder"
    run_dir = pretraining_folder(copy)
    shutil.copytree(out, copy)
    shutil.copytree(pretraining_folder(out), run_dir)
    left = [run_dir / "checkpoint", run_dir.with_name(f".{run_dir.name}.lock")]
    for path in left:
        path.touch()
    text = tmp_path / "text.txt"
    text.write_text("the cat\n")
    arguments = ["pretrain", "--bert_hub", "demo", "--text", str(text), "--out", str(copy)]
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments, prog_name="bert-flow")
    assert ended.value.code == 2
    assert not any(path.exists() for path in left)
