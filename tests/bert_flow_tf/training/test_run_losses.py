"""Losses of saved models and of runs."""

import tensorflow as tf

from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.common.losses import BITS
from bert_flow_tf.training.run_losses import read_losses
from tests.bert_flow_tf.records import flow, model, run_config
from tests.refusals import user_error


def write_events(folder, steps, scale):
    writer = tf.summary.create_file_writer(str(folder))
    for step in steps:
        with writer.as_default(step=step):
            for name in ("loss", "flow_loss", "dev_loss"):
                tf.summary.scalar(name, scale * step)
    writer.close()


def test_a_flow_run_has_the_bits_of_a_sentence(tmp_path):
    learned = run_config(model=model(flow=flow()), flags={"flow_loss": 1})
    write_json(tmp_path / "config.json", learned)
    write_events(tmp_path, [10, 20], 1.0)
    found = read_losses(tmp_path)
    assert found.unit == BITS and found.training == {10: 5.0, 20: 10.0}
    # Without this flag, the flow learned by the labels.
    write_json(tmp_path / "config.json", run_config(model=model(flow=flow())))
    assert read_losses(tmp_path).unit == "squared error of the cosine"


def test_a_step_taken_again_has_its_last_loss(tmp_path):
    write_json(tmp_path / "config.json", run_config())
    with user_error("found no losses, expected a model"):
        read_losses(tmp_path)
    for name, scale in (
        ("events.out.tfevents.1000000009.a", 1.0),
        ("events.out.tfevents.1000000010.a", 4.0),
    ):
        write_events(tmp_path / "new", [1, 2] if scale == 1 else [2, 3], scale)
        (written,) = (tmp_path / "new").iterdir()
        written.rename(tmp_path / name)
    found = read_losses(tmp_path)
    assert found.training == {1: 1.0, 2: 8.0, 3: 12.0}
    assert found.held_out == found.training and found.unit == "squared error of the cosine"
