"""Which figure stands where: a score beside what it is compared with, and nothing where nothing is comparable."""

import pytest

from bert_flow_tf.report import tables
from tests.bert_flow_tf.report import collected

REPORT = collected.report()


def lines(table):
    return [" ".join(line.split()) for line in table.to_text().splitlines()]


def test_a_score_stands_beside_its_baseline_the_papers_and_the_originals():
    header, _, flow, _, plain = lines(tables.scores_table(REPORT["scores"]))
    assert header.endswith("This run Baseline Δ baseline Paper Δ paper TF1 code Δ TF1")
    assert flow == (
        "cls + flow (runs) STS-B test 1,379 81.00 ± 1.00 (median 80.00, n = 3) 81.54 -0.54 "
        "70.72 (BERT-base-flow (README)) +10.28 80.57 (seed 1234) +0.43"
    )
    assert plain == "cls (plain) STS-B test 1,379 81.54 - - - - - -"


@pytest.mark.parametrize(
    ("flow", "seeds", "note"),
    [
        ({}, [7], "runs; seed 7"),
        ({}, [7, 8], "runs"),
        ({"config": None}, [], "runs; other flow configuration"),
        ({"config": "config_l2_d3_w32"}, [], "runs; config_l2_d3_w32"),
        ({"learned_on": "ALLNLI"}, [], "runs; flow learned on ALLNLI"),
        ({"learned_on": "sts-b", "flags": {"use_full_for_training": 0}}, [], "runs; train only"),
        ({"flags": {"flow_ddi": True}}, [], "runs; data-dependent initialisation"),
        ({"flags": None}, [], "runs"),
    ],
)
def test_an_embeddings_note_says_what_is_not_the_default(flow, seeds, note):
    row = collected.score("runs", 80.0, flow=collected.FLOW | flow, seeds=seeds)
    assert lines(tables.scores_table([row]))[2].startswith(f"cls + flow ({note}) STS-B")


def test_a_task_of_several_sets_has_a_column_for_each():
    found = lines(tables.subsets_table([REPORT["scores"][1]], ["demo"]))
    assert found[0] == "Embedding Encoder MSRpar MSRvid wmean"
    assert found[2] == "cls (sets) demo 65.43 80.00 70.00"


def test_seeds_stand_beside_table_8_where_it_is_comparable():
    flow = REPORT["scores"][0]
    header, _, row = lines(tables.seeds_table([flow]))
    assert "Table 8" not in header
    assert row == "cls + flow (runs) STS-B test 1, 2, 3 3 81.00 1.00 80.00 79.00 84.00"
    paper = {"row": "BERT-base-NLI-flow", "mean_x100": 81.0, "std_x100": 0.5, "median_x100": 81.1}
    header, _, row = lines(tables.seeds_table([flow | {"paper_seeds": paper}]))
    assert header.endswith("Table 8 Its mean Its std Its median")
    assert row.endswith("BERT-base-NLI-flow 81.00 0.50 81.10")


def test_calibrations_stand_beside_table_5():
    _, _, none, natsv, flow = lines(tables.calibration_table(REPORT["calibrations"][0]))
    assert none == "none - - 73.08 - 47.29 BERT-base - - -"
    assert natsv == "natsv 6 80.00 75.00 - - - - -"
    assert flow.startswith("flow (config_l3_d3_w32; seeds 1, 2, 3) - - 78.50 ± 1.00 (median 78.50, n = 3)")


def test_correlations_of_the_close_pairs_stand_below_those_of_all():
    header, _, *rows = lines(tables.lexical_table(REPORT["lexical"][0]))
    assert header == "Similarity Edit distance Table 6 Δ Table 6 Gold"
    assert rows == [
        "Gold similarity -24.55 -24.61 +0.06 100.00",
        "Gold similarity (edit distance ≤ 4, 130 pairs) - - - 100.00",
        "Undefined: all 2 predictions are 5.",
    ]


def test_word_statistics_stand_above_table_1():
    header, _, *rows = lines(tables.words_table(REPORT["words"][0]))
    assert header == "Measure Of 1 to 99 100 to 4,999"
    assert rows == ["words here 99 4,900", "mean ℓ2 norm here 0.90 -", "mean ℓ2 norm Table 1 0.95 1.04"]


def test_isotropy_is_a_row_per_measure_and_bits_are_those_without_the_flow():
    header, _, constant, cosine, *_, ratio, rank, partition, bits = lines(tables.isotropy_table(REPORT["isotropy"][0]))
    assert header == "Measure without flow standard normal"
    assert constant == "constant channels 3 0"
    assert cosine == "mean pairwise cosine 0.2500 0.2500"
    assert (ratio, rank) == ("participation ratio 0.2 0.2", "effective rank 0.2 0.2")
    assert partition == "partition ratio, min Z / max Z 0.2500 0.2500"
    assert bits == "bits per dimension, diagonal Gaussian -1.2500 -"


def test_a_run_says_what_it_learned_from_and_its_measures_on_dev():
    (record,) = REPORT["trainings"]
    unknown = record | {"learned_on": None, "seed": None, "pairs": None, "seconds": None, "flow": None, "on_dev": {}}
    header, _, *rows = lines(tables.training_table([record, unknown]))
    assert header == "Run Learned on Pairs Seed Steps Seconds eval_loss_flow"
    assert rows == ["runs (cls + flow) STS-B 8,628 1234 269 12.5 -0.6800", "runs (cls) - - 269 - -"]
