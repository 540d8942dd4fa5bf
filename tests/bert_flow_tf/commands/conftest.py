"""A small task that the commands are tested on."""

import pytest

from bert_flow_tf.tasks.scored_tasks import read_scored_split
from bert_flow_tf.tasks.tasks import get_task
from tests.bert_flow_tf import small_runs

PAIRS = {"train": 20, "dev": 14, "test": 16}


@pytest.fixture(scope="session")
def small_glue_dir(tmp_path_factory):
    """Folder with STS-B in GLUE's layout, the test split's scores too."""
    root = tmp_path_factory.mktemp("glue")
    small_runs.write_stsb(
        root / "STS-B", small_runs.TINY_WORDS[:25], PAIRS.values(), seed=7, gold=True
    )
    return root


@pytest.fixture(scope="session")
def small_splits(small_glue_dir):
    """`Examples` of that task by split."""
    return {split: read_scored_split(get_task("sts-b"), small_glue_dir, split) for split in PAIRS}
