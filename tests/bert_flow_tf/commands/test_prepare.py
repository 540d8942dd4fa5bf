"""`bert-flow prepare`: folders for training from SentEval's and TensorFlow Datasets' data."""

from bert_flow_tf.data import tasks
from bert_flow_tf.data.senteval import SUBSETS
from tests.refusals import refused, succeeds


def test_scored_pairs_of_senteval_become_a_full_text_each(tmp_path):
    for task in ("sts12", "sts13"):
        folder = tmp_path / "SentEval" / "STS" / f"{task.upper()}-en-test"
        folder.mkdir(parents=True)
        for name in SUBSETS[task]:
            # The second pair has no gold score.
            (folder / f"STS.input.{name}.txt").write_text(f"{task} {name} a\tb\nc\td\n")
            (folder / f"STS.gs.{name}.txt").write_text("2.5\n\n")
    out = tmp_path / "glue"
    command = ("prepare", "--data", "sts12,STS-13", "--senteval_dir", tmp_path / "SentEval", "--out", out)
    succeeds(*command)
    assert "exists" in refused(*command, unchanged=out)
    printed = succeeds(*command, "--overwrite")
    for line, task, pairs in zip(printed.splitlines(), ("STS-12", "STS-13"), (5, 3), strict=True):
        assert f"{out}/{task} ({pairs} " in line
    assert tasks.read_split(tasks.TASKS["sts-13"], out / "STS-13", "dev").sentences_a[0] == "sts13 FNWN a"


def test_a_dataset_becomes_files_in_the_layout_of_glue(tmp_path):
    import tensorflow_datasets as tfds

    with tfds.testing.mock_data(num_examples=4):
        printed = succeeds("prepare", "--data", "tfds:snli", "--out", tmp_path / "glue")
    assert f"{tmp_path}/glue/SNLI (4 train, 4 dev, 4 test " in printed
    assert len(tasks.read_split(tasks.SNLI, tmp_path / "glue/SNLI", "train")) == 4
