"""Commands in a run's folder."""

import pytest
from msgspec.structs import replace

from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.original.folder import RESULT, write_result
from bert_flow_tf.training.run_folder import (
    TRAIN_RESULTS_FILE,
    FinishedRun,
    check_run,
    locked_run,
    start_run,
)
from bert_flow_tf.training.run_records import read_config
from glow.config import GlowConfig
from tests.bert_flow_tf import records
from tests.bert_flow_tf.records import run_config
from tests.refusals import user_error

CONFIG = run_config()


def open_run(run_dir, config, overwrite, missing_outputs=()):
    """True for a resumed run; start another one."""
    if check_run(run_dir, config, overwrite, missing_outputs):
        return True
    start_run(run_dir, config, overwrite, RESULT)
    return False


def test_a_new_run_starts_and_the_same_settings_go_on(tmp_path):
    run_dir = tmp_path / "parent" / "run"
    assert open_run(run_dir, CONFIG, overwrite=False) is False
    assert read_config(run_dir) == CONFIG
    (run_dir / "model.ckpt-1.index").write_text("kept")
    moved = replace(CONFIG, encoder=replace(CONFIG.encoder, bert_hub="/elsewhere"))
    assert open_run(run_dir, CONFIG, overwrite=False) and open_run(run_dir, moved, overwrite=False)
    assert (run_dir / "model.ckpt-1.index").read_text() == "kept"
    (run_dir / TRAIN_RESULTS_FILE).write_text("{}")
    with pytest.raises(FinishedRun, match=str(run_dir)):
        open_run(run_dir, CONFIG, overwrite=False)
    assert open_run(run_dir, CONFIG, overwrite=False, missing_outputs=["test_results.tsv"])


@pytest.mark.differs("directory is not deleted")
def test_a_run_with_other_settings_is_named_by_them(tmp_path):
    deep, shallow = (records.model(flow=records.flow(GlowConfig(depth=depth))) for depth in (3, 2))
    old = run_config(begins_with="abc", model=deep)
    open_run(tmp_path / "run", old, overwrite=False)
    other = run_config(flags={"seed": 2}, data="x", model=shallow)
    other = replace(other, encoder=replace(other.encoder, fingerprint="c"))
    parts = ("data is 'b', not 'x'", "seed is 1, not", "init_checkpoint is 'abc'", "not 'c'")
    with user_error(*parts, "flow_config is ", "--overwrite"):
        open_run(tmp_path / "run", other, overwrite=False)
    assert read_config(tmp_path / "run") == old


@pytest.mark.parametrize("old", [CONFIG, {"format_version": 1, "encoder_trained": False}, None])
def test_overwrite_replaces_a_run_and_results_without_one(tmp_path, old):
    for name in (
        "test_results.tsv",
        "test_results.json",
        "eval_results.txt",
        "model.ckpt-9.dev_pooled.tsv",
    ):
        (tmp_path / name).write_text("x")
    if old:
        write_json(tmp_path / "config.json", old)
    with user_error(str(tmp_path)):
        open_run(tmp_path, run_config(flags={}), overwrite=False)
    assert open_run(tmp_path, run_config(flags={}), overwrite=True) is False
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_overwrite_through_a_link(tmp_path):
    open_run(tmp_path / "there", CONFIG, overwrite=False)
    (tmp_path / "there" / "old").mkdir()
    (tmp_path / "run").symlink_to("there")
    with locked_run(tmp_path / "run"):
        assert open_run(tmp_path / "run", run_config(flags={}), overwrite=True) is False
        assert {path.name for path in (tmp_path / "there").iterdir()} == {"config.json"}
    assert (tmp_path / "run").is_symlink()


@pytest.mark.parametrize("contents", [None, "not JSON", '{"format_version": 2}'])
def test_a_directory_that_is_no_run_is_never_deleted(tmp_path, contents):
    (tmp_path / "precious.tsv").write_text("x")
    if contents is not None:
        (tmp_path / "config.json").write_text(contents)
    with user_error(str(tmp_path)):
        open_run(tmp_path, CONFIG, overwrite=True)
    assert (tmp_path / "precious.tsv").read_text() == "x"


def test_results_that_are_replaced_go_before_their_record(tmp_path):
    path = tmp_path / "test_results.tsv"
    path.write_text("0.5\n")
    # Here the record cannot be written.
    path.with_suffix(".json").mkdir()
    with pytest.raises(OSError):
        write_result(path, "0.5\n", records.MADE_BY)
    assert not path.exists()
