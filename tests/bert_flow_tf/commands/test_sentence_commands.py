"""`fit`, `encode`, `similarity` and `project` on the command line: what they write, and one line for each mistake."""

import io

import numpy as np
import pytest
from google.protobuf import text_format
from tensorboard.plugins.projector import projector_config_pb2

from bert_flow_tf import BertFlow
from tests.bert_flow_tf.small_runs import small_flow_file
from tests.refusals import bert_flow, refused, succeeds

SENTENCES = [f"w{i} w{i % 7} w3" for i in range(16)]


@pytest.fixture(scope="module")
def sentences_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("sentences") / "sentences.txt"
    path.write_text("".join(f"{sentence}\n" for sentence in SENTENCES))
    return path


@pytest.fixture(scope="module")
def fit_arguments(tiny_encoder_dir, sentences_file, tmp_path_factory):
    flow = small_flow_file(tmp_path_factory.mktemp("flow"))
    arguments = ["--bert_hub", tiny_encoder_dir, "--sentence_embedding_type", "avg-last-2", "--max_seq_length", 8]
    arguments += ["--num_train_epochs", 1, "--train_batch_size", 8, "--flow_model_config", flow]
    return [*arguments, "--input", sentences_file]


@pytest.fixture(scope="module")
def saved(fit_arguments, tmp_path_factory):
    out = tmp_path_factory.mktemp("fit") / "model"
    assert succeeds("fit", *fit_arguments, "--out", out) == f"model written: {out} (16 sentences, 2 steps)\n"
    return out


@pytest.fixture(scope="module")
def expected(saved):
    return BertFlow.from_pretrained(saved).encode(SENTENCES)


def test_fit_prints_what_changes_on_sentences_that_it_holds_out(fit_arguments, tmp_path):
    path, out = tmp_path / "many.txt", tmp_path / "model"
    path.write_text("".join(f"w{i} w{j}\n" for i in range(20) for j in range(12)))
    said = succeeds("fit", *fit_arguments[:-1], path, "--out", out).splitlines()
    assert said[0].startswith("12 held-out sentences: mean cosine of random pairs ")
    assert said[-1] == f"model written: {out} (240 sentences, 28 steps)"


def test_encode_writes_what_the_model_gives_to_a_file_and_to_standard_output(saved, sentences_file, expected, tmp_path):
    out = tmp_path / "e.npy"
    said = succeeds("encode", "--model", saved, "--input", sentences_file, "--out", out)
    assert said == f"embeddings written: {out} (16 of width 32)\n"
    np.testing.assert_allclose(np.load(out), expected, rtol=0, atol=1e-5)
    arguments = ("encode", "--model", saved, "--input", "-", "--out", "-", "--normalize")
    outcome = bert_flow(*arguments, input=sentences_file.read_bytes())
    norms = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(np.load(io.BytesIO(outcome.stdout_bytes)), expected / norms, rtol=0, atol=1e-5)


def test_encode_in_bfloat16_is_near_and_not_the_same(saved, sentences_file, expected, tmp_path):
    out = tmp_path / "e.npy"
    succeeds("encode", "--model", saved, "--input", sentences_file, "--out", out, "--dtype", "bfloat16")
    assert 1e-4 < np.abs(np.load(out) - expected).max() <= 0.05 * np.abs(expected).max()


def test_similarity_prints_a_cosine_a_line(saved, expected, tmp_path):
    normalized = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    cosines = normalized[:3] @ normalized[5]
    said = succeeds("similarity", "--model", saved, SENTENCES[0], SENTENCES[5])
    assert float(said) == pytest.approx(cosines[0], abs=1e-5)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{sentence}\t{SENTENCES[5]}\n" for sentence in SENTENCES[:3]))
    said = succeeds("similarity", "--model", saved, "--pairs", pairs, "--columns", "1,2")
    np.testing.assert_allclose([float(line) for line in said.splitlines()], cosines, rtol=0, atol=1e-5)


def test_project_writes_what_tensorboards_projector_reads(saved, sentences_file, expected, tmp_path):
    out = tmp_path / "projection"
    succeeds("project", "--model", saved, "--input", sentences_file, "--out", out)
    config = text_format.Parse(
        (out / "projector_config.pbtxt").read_text(), projector_config_pb2.ProjectorConfig()
    ).embeddings
    assert [(tensor.tensor_name, tensor.tensor_path) for tensor in config] == [
        ("with_flow", "with_flow.tsv"),
        ("without_flow", "without_flow.tsv"),
    ]
    np.testing.assert_allclose(np.loadtxt(out / "with_flow.tsv", delimiter="\t"), expected, rtol=1e-5, atol=1e-5)
    assert (out / config[0].metadata_path).read_text().splitlines() == SENTENCES


@pytest.mark.parametrize(("command", "ours"), [("project", "projector_config.pbtxt"), ("fit", "bert_flow.json")])
def test_other_files_beside_an_earlier_result_are_kept(sentences_file, tmp_path, command, ours):
    for name in (ours, "events.out"):
        (tmp_path / name).touch()
    arguments = ("--bert_hub", "demo", "--input", sentences_file, "--out", tmp_path, "--overwrite")
    assert "holds events.out beside" in refused(command, *arguments, unchanged=tmp_path)
