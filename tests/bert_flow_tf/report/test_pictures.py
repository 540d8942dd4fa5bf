"""A report's pictures: comparable scores share a panel, and nothing is dropped."""

from bert_flow_tf.common.losses import Losses, write_losses
from bert_flow_tf.report import plots
from bert_flow_tf.report.collected import Source, find_results
from bert_flow_tf.report.pictures import report_pictures
from bert_flow_tf.report.rows import score_rows
from tests.bert_flow_tf.original import written
from tests.bert_flow_tf.records import MADE_BY


def titles(pictures):
    figures = [plots.panels([one]) for one in pictures]
    # A long title takes several lines.
    return [" ".join(one.axes[0].get_title(loc="left").split()) for one in figures]


def test_every_kind_of_result_has_its_pictures(tmp_path):
    sources = find_results([written.write_all(tmp_path)]).sources
    found, left_out = report_pictures(score_rows(sources), sources, [tmp_path])
    assert left_out == []
    assert titles(found["bars"]) == [
        "STS-12, test, 3,108 pairs: Spearman wmean",
        "STS-B, test, 1,379 pairs: Spearman (whiskers: deviation over seeds)",
    ]
    assert titles(found["methods"]) == ["calibration.json: Spearman (whiskers: 95 % of the change)"]
    assert titles(found["spectrum"]) == ["isotropy.json: variance by direction"]


def test_two_splits_of_one_task_have_a_panel_each(tmp_path):
    results = {split: written.task_scores(split=split) for split in ("test", "dev")}
    sources = [Source(tmp_path / split, written.scores(stsb=one)) for split, one in results.items()]
    bars = report_pictures(score_rows(sources), sources, []).pictures["bars"]
    assert titles(bars) == [f"STS-B, {split}, 1,379 pairs: Spearman" for split in results]


def test_runs_of_equal_names_keep_their_losses(tmp_path):
    folders = [tmp_path / parent / "stsb" for parent in "ab"]
    for i, folder in enumerate(folders):
        folder.mkdir(parents=True)
        losses = Losses(made_by=MADE_BY, unit="bits per dimension", training={1: 2.0, 2: 1.0 + i})
        write_losses(folder, losses)
    folders = [tmp_path / "a", tmp_path / "b"]
    (picture,) = report_pictures([], [], folders).pictures["losses"]
    axes = plots.panels([picture]).axes[0]
    assert axes.get_legend_handles_labels()[1] == ["a/stsb, training", "b/stsb, training"]
