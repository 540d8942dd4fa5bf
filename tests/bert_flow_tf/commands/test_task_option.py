"""`--task`: the paper's and the original's names, and whose gold scores there are."""

import pytest

from bert_flow_tf.commands.task_option import TaskName, require_gold
from bert_flow_tf.errors import UserError
from bert_flow_tf.tasks import TASKS, get_task
from tests.bert_flow_tf.commands.refusals import refused


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("STS-B", "sts-b"),
        ("stsb", "sts-b"),
        ("sickr", "sick-r"),
        ("QNLI", "qnli-regression"),
        ("qnli-regression", "qnli-regression"),
        ("STS-12-16", "sts-12-16"),
    ],
)
def test_a_task_goes_by_its_names(text, name):
    assert TaskName().convert(text, None, None) is TASKS[name]


@pytest.mark.parametrize("name", TASKS)
def test_every_task_goes_by_its_own_name_and_folder(name):
    assert TaskName().convert(name, None, None).name == TaskName().convert(TASKS[name].directory, None, None).name


def test_unknown_task_is_refused_with_the_known_ones():
    line = refused("analyze", "isotropy", "--task", "sts-17", "--glue_dir", ".", "--bert_hub", "demo", "--out", "x")
    assert line.startswith("--task: unknown task 'sts-17', expected one of sts-b, sick-r, ")


@pytest.mark.parametrize(
    ("name", "splits", "message"),
    [
        ("mnli", ["dev"], "mnli has no gold scores for its dev split, expected one of sts-b, sick-r, qqp"),
        ("sts-12", ["test"], "sts-12 has no gold scores for its test split, expected one of sts-b, sick-r, mrpc"),
        ("qqp", ["dev", "test"], "qqp has no gold scores for its test split, expected one of sts-b, sick-r, mrpc"),
    ],
)
def test_a_task_without_gold_scores_is_refused_with_those_that_have_them(name, splits, message):
    with pytest.raises(UserError) as error:
        require_gold(get_task(name), splits)
    assert str(error.value).startswith(f"--task: {message}")
    require_gold(get_task("sts-b"), splits)
