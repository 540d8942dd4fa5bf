"""A flow that TF1 trained gives the same cosines."""

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.api import BertFlow
from bert_flow_tf.original.tf1_run import convert_tf1_run, write_tf1_run
from bert_flow_tf.tasks.protocols import score_predictions
from bert_flow_tf.tasks.tasks import TASKS, read_split

CHECKPOINT = "flow_trained_minilm_cls/flow.ckpt-269"


@pytest.fixture(scope="module")
def run_dir(golden_dir, demo_dir, tmp_path_factory):
    """The original's flow over the demo encoder's `cls`, as a bert_flow_tf run."""
    out = tmp_path_factory.mktemp("tf1") / "run"
    return convert_tf1_run(
        golden_dir / CHECKPOINT, out, sentence_embedding_type="cls", bert_hub=str(demo_dir)
    )


def test_back_under_tf1s_names_it_holds_the_same_bits(run_dir, golden_dir, tmp_path, deviation):
    original = tf.train.load_checkpoint(str(golden_dir / CHECKPOINT))
    ours = tf.train.load_checkpoint(str(write_tf1_run(run_dir, tmp_path / "tf1")))
    names = [name for name in original.get_variable_to_shape_map() if name.startswith("bert/flow/")]
    assert len(names) > 100
    assert set(names) == {
        name for name in ours.get_variable_to_shape_map() if name.startswith("bert/flow/")
    }
    pairs = [(original.get_tensor(name), ours.get_tensor(name)) for name in names]
    others = [(a.dtype, a.shape, a.tobytes()) != (b.dtype, b.shape, b.tobytes()) for a, b in pairs]
    deviation(
        "checkpoints, variables with other bits after the way from TF1 and back", sum(others), 0
    )
    assert ours.get_tensor("global_step") == 269


def test_cosines_on_the_sts_benchmark_are_those_of_tf1(
    run_dir, demo_dir, reference_data, deviation
):
    glue_dir = reference_data / "data" / "glue"
    examples = read_split(TASKS["sts-b"], str(glue_dir / "STS-B"), "test")
    run = BertFlow.load(run_dir)
    model = BertFlow.from_hub(str(demo_dir), sentence_embedding_type="cls", max_seq_length=64)
    sides = examples.sentences_a, examples.sentences_b
    plain = [model.encode(sentences) for sentences in sides]
    flow = [run.after_flow(u) for u in plain]
    few = [run.encode(sentences[:100]) for sentences in sides]
    for (a, b), words, name, spearman in (
        (plain, "without a flow that TF1 trained", "stsb_test_cosine_without_flow.tsv", 0.7308),
        (flow, "with a flow that TF1 trained", "stsb_test_cosine.tsv", 0.7846),
        (few, "with a flow that TF1 trained", "stsb_test_cosine.tsv", None),
    ):
        expected = np.loadtxt(reference_data / "golden" / "flow_trained_minilm_cls" / name)[
            : len(a)
        ]
        cosines = np.sum(a * b, axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        what = f"checkpoints, cosines of STS-B test {words}, absolute"
        deviation(what, np.abs(cosines - expected).max(), 2e-6)
        if spearman:
            assert (
                round(
                    score_predictions(cosines, TASKS["sts-b"], str(glue_dir), "test")["spearman"], 4
                )
                == spearman
            )
