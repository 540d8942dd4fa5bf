"""A report's page shows every result, and its tables set figures beside the paper's and the original's."""

import pytest
import tensorflow as tf
from msgspec.structs import replace

from bert_flow_tf.report import tables
from bert_flow_tf.report.page import read_curves, write_report
from bert_flow_tf.results.rows import score_rows
from bert_flow_tf.results.sources import find_sources
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


def test_every_result_is_on_the_page(results, tmp_path):
    sources = find_sources([results])
    write_report(tmp_path / "report", "<script>alert(1)</script>", sources)
    page = Page((tmp_path / "report" / "report.html").read_text())
    assert not page.all("script")
    assert [one["id"] for one in page.all("h2")] == [f"section-{i}" for i in range(1, 8)]
    # Cosines, seeds, calibrations, three analyses and a curve.
    assert len(page.all("img")) == 7
    assert all(one["src"].startswith("data:image/svg+xml;base64,") for one in page.all("img"))
    assert {"cls + flow (learned on STS-B; seed 1234)", "sn+natsv", "effective rank"} <= {
        cell for row in page.rows for cell in row
    }


def test_page_has_the_same_bytes_again(results, tmp_path):
    sources = find_sources([results])
    for name in ("one", "two"):
        write_report(tmp_path / name, "Results", sources)
    assert (tmp_path / "one" / "report.html").read_bytes() == (tmp_path / "two" / "report.html").read_bytes()


def test_curves_are_read_from_events(results, tmp_path):
    assert read_curves(results / "run") == {"flow_loss": [(10, 3.0), (20, 1.5)]}
    assert read_curves(tmp_path) == {}


def test_a_score_stands_beside_the_tf1_code_and_the_score_without_flow(results):
    table = lines(tables.rows_table(score_rows(find_sources([results / "demo.json", results / "run"]))))
    assert table[0].endswith("x100 without flow change TF1 code")
    assert f"{results}/demo.json cls demo STS-B test Spearman 1,379 73.00 - - 73.08" in table
    flow = f"{results}/run cls + flow (learned on STS-B; seed 1234) demo STS-B test Spearman 1,379"
    assert f"{flow} 78.46 73.00 +5.46 78.49 (2 runs)" in table


def test_a_fall_by_a_flow_is_marked(tmp_path):
    before, after = (written.write(tmp_path / f"{name}.json", scores) for name, scores in (
        ("before", written.scores(stsb=written.task_scores(score=0.8))),
        ("after", written.scores(written.CLS_FLOW, stsb=written.task_scores(score=0.79))),
    ))  # fmt: skip
    assert "-1.00 (falls by 1.00)" in lines(tables.rows_table(score_rows(find_sources([before, after]))))[3]


def test_calibrations_stand_beside_table_5():
    assert lines(tables.calibration_table(written.calibrations()))[2:] == [
        "none - - 73.08 - 0.1 47.29 (BERT-base, not comparable) BERT-base",
        "sn+natsv 6 80.00 75.00 +1.92 0.1 63.51 (BERT-base, not comparable) + SN + NATSV (k=6)",
        "whitening - - 79.00 +5.92 0.1 - -",
        "flow - - 78.45 ± 0.07 +5.37 20.0 65.62 (BERT-base, not comparable) BERT-base-flow (target)",
    ]


@pytest.mark.parametrize("changes", [{"test_pairs": 60}, {"fit_on": "train"}, {"task": "sick-r"}])
def test_calibrations_of_other_data_stand_alone(changes):
    assert "Table 5" not in lines(tables.calibration_table(written.calibrations(**changes)))[0]


def test_calibrations_of_the_papers_encoder_are_comparable():
    papers = records.model(encoder=records.encoder("base"), pooling="avg")
    text = "\n".join(lines(tables.calibration_table(written.calibrations(papers))))
    assert "47.29 BERT-base" in text and "TF1 code" not in text


def test_lexical_correlations_stand_beside_table_6():
    assert lines(tables.lexical_table(written.lexical())) == [
        "similarity edit distance Table 6 gold Table 6",
        "-" * len(tables.lexical_table(written.lexical()).to_text().splitlines()[1]),
        "Gold similarity -24.55 -24.61 100.00 100.00",
        "BERT-induced similarity -30.00 -50.49 (BERT-base, not comparable) 80.00 59.30 (BERT-base, not comparable)",
        "Gold similarity, edit distance ≤ 4 (130 pairs) 3.00 - - -",
        "Gold similarity with gold: undefined",
    ]
    for other in (written.lexical("sts-b", "test"), written.lexical("sick-r")):
        assert "Table 6" not in lines(tables.lexical_table(other))[0]


def test_word_statistics_stand_above_table_1():
    table = lines(tables.words_table(written.words()))
    assert table[0] == "measure of 1 to 99 100 to 499 500 to 4,999 5,000 to 9,999"
    assert table[2:5] == [
        "words here 99 400 4,500 5,000",
        "mean ℓ2 norm here 0.90 0.90 0.90 0.90",
        "mean ℓ2 norm Table 1 0.95 1.04 1.22 1.45",
    ]
    assert table[-1] == "mean 7-NN dot product Table 1 0.72 0.90 1.17 1.60"


def test_isotropy_is_a_row_per_measure():
    table = lines(tables.isotropy_table(written.isotropies()))
    assert table[0] == "measure without flow standard normal"
    assert table[3] == "mean cosine 0.9214 0.0196"
    assert table[-1] == "bits per dimension, diagonal Gaussian -1.2500 -"


def test_undefined_measures_of_a_run_are_left_out(tmp_path):
    run = written.write_run(tmp_path / "run")
    (run / "eval_results.txt").write_text("eval_pearsonr = nan\neval_loss_flow = 1e-05\nloss = 2.0\n")
    header, _, row = lines(tables.sources_table(find_sources([run])))
    assert header == "source command encoder pooling learned on pairs steps seconds on dev versions"
    assert "cls, 64 word pieces STS-B 8,628 269 12.5 loss_flow = 1e-05 " in row


@pytest.mark.parametrize(
    ("name", "fine_tuning", "words"),
    [
        ("demo", None, "demo"),
        (None, None, "encoder"),
        ("base", Training(), "base, fine-tuned: unknown (aaaaaaaa)"),
    ],
)
def test_an_encoder_in_words(name, fine_tuning, words):
    encoder = records.encoder(name, fine_tuning=fine_tuning, fingerprint=records.DEMO)
    assert tables.encoder_in_words(encoder) == words
