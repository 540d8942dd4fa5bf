"""Data of other layouts is read again as it was."""

import json

import numpy as np
import pytest

from bert_flow_tf.data import datasets, tasks
from bert_flow_tf.files.atomic import output_folder
from tests.refusals import user_error


def subset(*pairs):
    return tasks.Examples([a for a, _ in pairs], [b for _, b in pairs], np.arange(len(pairs), dtype=float))


@pytest.mark.differs("`full.txt`")
def test_full_text_is_what_the_originals_processors_read(tmp_path):
    task = tasks.TASKS["sts-12"]
    pairs = subset(("Ein Boot.", "A boat."), ("x\ty", "z\r\n"), ("Zwölf.", "Twelve."))
    datasets.write_task(tmp_path / "STS-12", task, {"train": pairs}, "SentEval")
    examples = tasks.read_split(task, tmp_path / "STS-12", "dev")
    assert examples.sentences_a == ["Ein Boot.", "x y", "Zwölf."]
    assert examples.sentences_b == ["A boat.", "z ", "Twelve."]


def test_only_a_prepared_folder_is_replaced(tmp_path):
    folder, options = tmp_path / "STS-12", {"overwrite": True, "flag": "--out"}
    datasets.write_task(folder, tasks.TASKS["sts-12"], {"train": subset(("a", "b"))}, "SentEval")
    output_folder(folder, datasets.PREPARED_FOLDER, **options)
    (folder / "sts-test.csv").touch()
    with user_error("holds sts-test.csv"):
        output_folder(folder, datasets.PREPARED_FOLDER, **options)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("tfds:glue/stsb", [3.8, 0.0, 5.0]),
        ("tfds:glue/mrpc", [0.0, 1.0, 1.0]),
        ("tfds:glue/qnli", [1.0, 0.0, 1.0]),
        ("tfds:glue/qqp", [0.0, 1.0, 0.0]),
        ("tfds:glue/mnli", [0, 1, 2]),
        ("tfds:snli", [2, 1, 0]),
    ],
)
@pytest.mark.parametrize("labelled_test", [False, True])
def test_a_dataset_comes_back_from_its_files(tmp_path, monkeypatch, name, labels, labelled_test):
    typed = np.array(labels, float)

    def read(dataset, split):
        has_labels = split != "test" or labelled_test
        a = [f"{split} {i}: „ein“ Boot" for i in range(3)]
        return tasks.Examples(a, ["tab\tand\nline"] * 3, typed * has_labels, has_labels)

    monkeypatch.setattr(datasets, "read_dataset", read)
    task = datasets.DATASETS[name]
    folder = tmp_path / task.directory
    assert datasets.write_dataset(folder, name) == {"train": 3, "dev": 3, "test": 3}
    for split in tasks.SPLITS:
        examples = tasks.read_split(task, folder, split)
        assert examples.sentences_a == [f"{split} {i}: „ein“ Boot" for i in range(3)]
        assert examples.sentences_b == ["tab and line"] * 3
        if split != "test":
            np.testing.assert_array_equal(examples.labels, typed)
    if "gold" in task.files:
        assert (folder / task.files["gold"].name).exists() == labelled_test
        if labelled_test:
            np.testing.assert_allclose(tasks.gold_scores(task, tmp_path, "test"), typed, rtol=1e-6)
    assert json.loads((folder / "prepared.json").read_text())["source"] == name
