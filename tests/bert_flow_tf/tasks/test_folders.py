"""Data of other layouts is read again as it was."""

import numpy as np
import pytest

from bert_flow_tf.common.atomic import output_folder
from bert_flow_tf.tasks import senteval, tasks
from tests.refusals import user_error


def subset(*pairs):
    return tasks.Examples(
        [a for a, _ in pairs], [b for _, b in pairs], np.arange(len(pairs), dtype=float)
    )


@pytest.mark.differs("`full.txt`")
def test_full_text_is_what_the_originals_processors_read(tmp_path):
    task = tasks.TASKS["sts-12"]
    pairs = subset(("Ein Boot.", "A boat."), ("x\ty", "z\r\n"), ("Zwölf.", "Twelve."))
    senteval.write_full_text(tmp_path / "STS-12", [pairs], "SentEval")
    examples = tasks.read_split(task, tmp_path / "STS-12", "dev")
    assert examples.sentences_a == ["Ein Boot.", "x y", "Zwölf."]
    assert examples.sentences_b == ["A boat.", "z ", "Twelve."]


def test_only_a_prepared_folder_is_replaced(tmp_path):
    folder, options = tmp_path / "STS-12", {"overwrite": True, "flag": "--out"}
    senteval.write_full_text(folder, [subset(("a", "b"))], "SentEval")
    output_folder(folder, senteval.PREPARED_FOLDER, **options)
    (folder / "sts-test.csv").touch()
    with user_error("holds sts-test.csv"):
        output_folder(folder, senteval.PREPARED_FOLDER, **options)
