"""Tables of results, and a report of them."""

import pathlib

from bert_flow_tf.common.records import Training
from bert_flow_tf.report import reports as tables
from bert_flow_tf.report.collected import Source, find_results
from bert_flow_tf.report.rows import score_rows
from bert_flow_tf.tasks.scores import WHY_FLOW
from glow.config import GlowConfig
from tests.bert_flow_tf import records
from tests.bert_flow_tf.original import written


def lines(table):
    """The lines of a table with single spaces."""
    return [" ".join(line.split()) for line in table.to_text().splitlines()]


def test_every_result_is_in_the_report(tmp_path):
    sources = find_results([written.write_all(tmp_path)]).sources
    scores, *others, last = tables.report_of(sources).tables
    assert last.columns[0] == "same as the original?"
    assert (
        "cls + flow (learned on STS-B; seed 1234)" in scores.to_text()
        and "78.46" in scores.to_text()
    )
    assert [one.title.partition(": ")[0] for one in others] == [
        f"{tmp_path}/{name}.json" for name in ("calibration", "isotropy")
    ]
    assert "effective rank" in others[1].to_text()


def test_the_columns_of_the_paper_are_explained_where_they_are(tmp_path):
    sources = find_results([written.write_all(tmp_path)]).sources
    table = next(one for one in tables.report_of(sources).tables if "x100" in one.columns)
    assert "TF1 code" in table.columns and table.notes[0].startswith("paper: ")
    scores = written.scores(model=records.model(encoder=records.encoder("other"), pooling="avg"))
    table = _reported(scores)
    assert "paper" not in table.columns and "TF1 code" not in table.columns
    assert not any(note.startswith("paper: ") for note in table.notes)


def test_a_configuration_without_a_name_shows_its_differences():
    config = GlowConfig(n_levels=2, coupling="affine", coupling_width=16)
    scores = written.scores(model=records.model(flow=records.flow(config=config)))
    text = _reported(scores).to_text()
    assert "(coupling=affine, coupling_width=16, n_levels=2;" in " ".join(text.split()), text


def test_a_score_stands_beside_those_of_tf1_and_without_flow(tmp_path):
    results = written.write_all(tmp_path)
    table = lines(
        tables.rows_table(
            score_rows(find_results([results / "demo.json", results / "run"]).sources)
        )
    )
    assert table[0] == "64 word pieces, flow learned with dropout"
    assert table[1].endswith("x100 all pairs without flow change TF1 code")
    assert "demo cls demo STS-B test Spearman 1,379 73.00 - - - 73.08" in table
    flow = f"{results}/run/model.ckpt-269 cls + flow (learned on STS-B; seed 1234) demo"
    assert f"{flow} STS-B test Spearman 1,379 78.46 - 73.00 +5.46 78.49 (2 runs)" in table
    # STS-12 has no more with the flow than without.
    assert f"{flow} STS-12 test Spearman wmean 3,108 70.00 72.00 70.00 0.00 -" in table
    written.write(
        results / "demo.json",
        written.scores(stsb=written.task_scores(score=0.8, pearson={"all": 0.8274})),
    )
    table = lines(
        tables.rows_table(
            score_rows(find_results([results / "demo.json", results / "run"]).sources)
        )
    )
    assert (
        "cls demo STS-B test Spearman 1,379 80.00 - 82.74 -" in table[3]
        and " -1.54 78.49" in table[-4]
    )
    assert table[-3].startswith("wmean: ") and table[-2:] == list(WHY_FLOW)


AVG = records.model(pooling="avg")


def _reported(result):
    """Return the report's only table."""
    (table,) = tables.report_of([Source(pathlib.Path("a"), result)]).tables
    return table


def test_a_comparison_stands_beside_table_5_and_recommends():
    title, header, _, *rows = lines(_reported(written.comparison(AVG)))
    assert title == "a: demo, cls: 100 sentences, 1,379 labelled pairs"
    assert header.startswith(
        "method Spearman change AUC best F1 precision at 1 in 1,000 witness without labels mean"
    )
    assert rows == [
        "none 73.08 - - - - 90.00 - 0.300 0.700 47.29",
        "sn 75.00 +1.92 (95 %: +1.00 to +3.00) - - - 91.00 no clear change - - 55.46",
        "flow 78.45 +5.37 (95 %: +4.00 to +6.00) 80.00 70.00 (at cosine 0.55) 2.00 - - - - 65.62",
        "Table 5: BERT-base, not comparable.",
        "The best F1's cosine belongs to the share of equal pairs among these; \"precision at 1 in "
        '1,000" is its precision where one in 1,000 pairs is equal.',
        "recommended, by the labelled pairs: flow",
    ]
    for other in ({"pairs": 60}, {"task": None}, {"model": written.CLS}):
        compared = written.comparison(**{"model": AVG} | other)
        assert "Table 5" not in lines(_reported(compared))[1]


def test_isotropy_is_a_row_per_measure():
    table = lines(tables.isotropy_table(written.isotropies()))
    assert (table[0], table[3]) == (
        "measure without flow standard normal",
        "mean cosine 0.9214 0.0196",
    )
    assert table[-1] == "bits per dimension, diagonal Gaussian -1.2500 -"


def test_an_encoder_is_named_with_its_training():
    tuned = records.encoder("base", fine_tuning=Training(), fingerprint=records.DEMO)
    words = [tables.encoder_in_words(encoder) for encoder in (tuned, records.encoder(None))]
    assert words == ["base, fine-tuned: unknown (aaaaaaaa)", "encoder"]


def test_a_missing_column_of_the_paper_has_a_reason():
    table = tables.scores_table(written.scores(), explain_paper=True)
    assert lines(table)[-1] == (
        "No column of the paper: needs BERT-base or BERT-large; a pooling and a flow of its tables."
    )
    assert "No column" not in tables.scores_table(written.scores()).to_text()
    base = written.scores(records.model(encoder=records.encoder("base")))
    assert "No column" not in tables.scores_table(base, explain_paper=True).to_text()
    few = written.scores(
        records.model(encoder=records.encoder("base"), max_seq_length=128),
        stsb=written.task_scores(pairs=60),
    )
    assert lines(tables.scores_table(few, explain_paper=True))[-1] == (
        "No column of the paper: needs 64 word pieces and all channels; the whole test split."
    )
