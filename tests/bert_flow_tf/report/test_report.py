"""A report's page and its tables."""

import pytest
import tensorflow as tf
from msgspec.structs import replace

from bert_flow_tf.report import tables
from bert_flow_tf.report.page import read_curves, write_report
from bert_flow_tf.results.rows import score_rows
from bert_flow_tf.results.sources import find_sources
from bert_flow_tf.results.table import WHY_FLOW
from bert_flow_tf.runs.record import Training
from tests.bert_flow_tf import records
from tests.bert_flow_tf.markup import Page
from tests.bert_flow_tf.results import written


def lines(table):
    """The lines of a table with single spaces."""
    return [" ".join(line.split()) for line in table.to_text().splitlines()]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder with every kind of result, and events of its run."""
    folder = written.write_all(tmp_path_factory.mktemp("shared") / "results")
    models = lambda name, seed: replace(written.CLS, flow=records.flow(seed=seed))  # noqa: E731 (of two arguments)
    written.write(folder / "seeds" / "reproduction.json", written.reproduction({"flow": [0.79, 0.8, 0.84]}, models))
    with tf.summary.create_file_writer(str(folder / "run")).as_default():
        for step in (10, 20):
            tf.summary.scalar("flow_loss", 30.0 / step, step=step)
            tf.summary.scalar("learning_rate", 0.1, step=step)
    return folder


def test_every_result_is_on_the_page_in_the_same_bytes(results, tmp_path):
    sources = find_sources([results])
    for name in ("one", "two"):
        write_report(tmp_path / name, "<script>alert(1)</script>", sources)
    text, again = ((tmp_path / name / "report.html").read_text() for name in ("one", "two"))
    assert text == again
    page = Page(text)
    assert not page.all("script")
    assert [one["id"] for one in page.all("h2")] == [f"section-{i}" for i in range(1, 8)]
    # Cosines, seeds, calibrations, three analyses and a curve have a picture each.
    assert len(page.all("img")) == 7
    assert all(one["src"].startswith("data:image/svg+xml;base64,") for one in page.all("img"))
    assert {"cls + flow (learned on STS-B; seed 1234)", "sn+natsv", "effective rank"} <= {
        cell for row in page.rows for cell in row
    }


def test_curves_are_read_from_events(results, tmp_path):
    assert read_curves(results / "run") == {"flow_loss": [(10, 3.0), (20, 1.5)]}
    assert read_curves(tmp_path) == {}


def test_a_score_stands_beside_those_of_tf1_and_without_flow(results):
    table = lines(tables.rows_table(score_rows(find_sources([results / "demo.json", results / "run"]))))
    assert table[0] == "64 word pieces, flow learned with dropout" and table[1].endswith(
        "x100 without flow change TF1 code"
    )
    assert f"{results}/demo.json cls demo STS-B test Spearman 1,379 73.00 - - 73.08" in table
    flow = f"{results}/run cls + flow (learned on STS-B; seed 1234) demo STS-B test Spearman 1,379"
    assert f"{flow} 78.46 73.00 +5.46 78.49 (2 runs)" in table


def test_a_fall_by_a_flow_is_marked(tmp_path):
    for name, model, score in (("0.json", written.CLS, 0.8), ("1.json", written.CLS_FLOW, 0.79)):
        written.write(tmp_path / name, written.scores(model, stsb=written.task_scores(score=score)))
    table = lines(tables.rows_table(score_rows(find_sources([tmp_path]))))
    assert "-1.00 (falls by 1.00)" in table[4] and "in a cone" in table[5]


def test_pearson_stands_beside_spearman_and_protocols_are_explained_once():
    sts12 = written.task_scores("STS-12", {"wmean": 0.71064, "mean": 0.7001, "all": 0.7237}, 3108)
    pearson = dict.fromkeys(("wmean", "mean", "all"), 0.8274)
    table = lines(tables.scores_table(written.scores(sts12=replace(sts12, pearson=pearson))))
    assert [table[1], table[3], table[6][:6]] == [
        "embedding encoder task split metric pairs x100 Pearson",
        "cls demo STS-12 test Spearman wmean 3,108 71.06 82.74",
        "wmean:",
    ]
    assert max(map(len, [table[6], *WHY_FLOW])) <= 100


def test_calibrations_stand_beside_table_5():
    table = lines(tables.calibration_table(written.calibrations()))
    assert [table[0], *table[3:]] == [
        "STS-B, test; demo, cls, 64 word pieces; fitted on all, the flow without dropout",
        "none - - 73.08 - 0.1 47.29 BERT-base",
        "sn+natsv 6 80.00 75.00 +1.92 0.1 63.51 + SN + NATSV (k=6)",
        "whitening - - 79.00 +5.92 0.1 - -",
        "flow - - 78.45 ± 0.07 +5.37 20.0 65.62 BERT-base-flow (target)",
        "Table 5: BERT-base, not comparable.",
    ]
    for other in ({"test_pairs": 60}, {"fit_on": "train"}, {"task": "sick-r"}):
        assert "Table 5" not in lines(tables.calibration_table(written.calibrations(**other)))[1]
    papers = written.calibrations(records.model(encoder=records.encoder("base"), pooling="avg"))
    assert "comparable" not in "\n".join(lines(tables.calibration_table(papers)))


def test_lexical_correlations_stand_beside_table_6():
    header, _, *rows = lines(tables.lexical_table(written.lexical()))
    assert [header, *rows] == [
        "similarity edit distance Table 6 gold Table 6",
        "Gold similarity -24.55 -24.61 100.00 100.00",
        "BERT-induced similarity -30.00 -50.49 80.00 59.30",
        "Gold similarity, edit distance ≤ 4 (130 pairs) 3.00 - - -",
        "Table 6: BERT-base, not comparable, except for the gold similarity.",
        "Gold similarity with gold: undefined",
    ]
    for other in (written.lexical("sts-b", "test"), written.lexical("sick-r")):
        assert "Table 6" not in lines(tables.lexical_table(other))[0]


def test_word_statistics_stand_above_table_1():
    table = lines(tables.words_table(written.words()))
    assert [*table[:1], *table[2:5], table[-1]] == [
        "measure of 1 to 99 100 to 499 500 to 4,999 5,000 to 9,999",
        "words here 99 400 4,500 5,000",
        "mean ℓ2 norm here 0.90 0.90 0.90 0.90",
        "mean ℓ2 norm Table 1 0.95 1.04 1.22 1.45",
        "mean 7-NN dot product Table 1 0.72 0.90 1.17 1.60",
    ]


def test_isotropy_is_a_row_per_measure():
    table = lines(tables.isotropy_table(written.isotropies()))
    assert (table[0], table[3]) == ("measure without flow standard normal", "mean cosine 0.9214 0.0196")
    assert table[-1] == "bits per dimension, diagonal Gaussian -1.2500 -"


def test_undefined_measures_of_a_run_are_left_out(tmp_path):
    run = written.write_run(tmp_path / "run")
    (run / "eval_results.txt").write_text("eval_pearsonr = nan\neval_loss_flow = 1e-05\nloss = 2.0\n")
    header, _, row = lines(tables.sources_table(find_sources([run])))
    assert header == "source command encoder pooling learned on pairs steps seconds on dev versions"
    assert "cls, 64 word pieces STS-B 8,628 269 12.5 loss_flow = 1e-05 " in row


def test_an_encoder_in_words():
    assert tables.encoder_in_words(records.encoder("demo")) == "demo"
    assert tables.encoder_in_words(records.encoder(None)) == "encoder"
    tuned = records.encoder("base", fine_tuning=Training(), fingerprint=records.DEMO)
    assert tables.encoder_in_words(tuned) == "base, fine-tuned: unknown (aaaaaaaa)"
