"""Commands of `bert-flow` say what they do."""

import logging

import pytest

from tests.bert_flow_tf import small_runs
from tests.refusals import bert_flow

pytestmark = pytest.mark.usefixtures("small_default_flow")


def write_glue(folder):
    """Write a small STS-B with its labelled test set."""
    words = small_runs.TINY_WORDS[:25]
    small_runs.write_stsb(folder / "STS-B", words, (24, 24, 24), gold=True)
    return folder


@pytest.fixture
def start(tiny_encoder_dir, tmp_path):
    """A function that runs a command's example on little data."""
    small_runs.write_sentences(tmp_path / "texts.txt", 512)
    glue_dir = write_glue(tmp_path / "glue")
    encoder = ("--bert_hub", tiny_encoder_dir, "--max_seq_length", 8)
    texts = ("--input", tmp_path / "texts.txt")
    # Few texts are one batch, which needs no report.
    small_runs.write_sentences(tmp_path / "many.txt", 2000)
    many = ("--input", tmp_path / "many.txt")
    examples = {
        "fit": (*encoder, *texts, "--out", tmp_path / "model"),
        "encode": (*encoder, *texts, "--out", tmp_path / "vectors.npy"),
        "encode-folder": (*encoder, *texts, "--out", tmp_path / "folder"),
        "duplicates": (*encoder, *texts, "--threshold", 0.99, "--out", tmp_path / "groups.csv"),
        "evaluate": (*encoder, "--tasks", "stsb", "--glue_dir", glue_dir),
        "compare": (*encoder, *many, "--methods", "sn"),
        "isotropy": (*encoder, *many),
    }
    return lambda name: bert_flow(name, *examples[name])


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("fit", "learning"),
        ("encode", "encoding"),
        ("encode-folder", "files to encode"),
        ("duplicates", "encoding"),
        ("evaluate", "scoring"),
        ("compare", "encoding"),
        ("isotropy", "encoding"),
    ],
)
def test_long_command_reports_progress(start, name, word, caplog):
    outcome = start(name)
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
    assert [one for one in caplog.records if one.levelno == logging.INFO and word in one.message]
