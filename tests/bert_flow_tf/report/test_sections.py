"""A report's sections: which figure stands where, in what order and words; nothing where none is comparable."""

import pytest

from bert_flow_tf.report import tables
from bert_flow_tf.report.sections import encoder_in_words, lead, sections


@pytest.fixture(scope="module")
def section(report):
    """The sections by name."""
    return {one.name: one for one in sections(report)}


def lines(table):
    return [" ".join(line.split()) for line in table.to_text().splitlines()]


def test_every_kind_of_result_has_a_section_and_an_empty_one_is_left_out(report, section):
    names = [
        "verdict",
        "scores",
        "similarities",
        "seeds",
        "calibrations",
        "lexical",
        "words",
        "isotropy",
        "training",
        "sources",
    ]
    assert list(section) == names
    plots = [plot for one in section.values() for plot in one.plots]
    assert plots == ["seeds-1", "calibration-1", "lexical-1", "words-1", "isotropy-1"]
    assert section["seeds"].plots == ["seeds-1"] and section["words"].plots == ["words-1"]
    assert section["similarities"].panels == ["before-1", "after-1", "histogram-1"]
    assert section["training"].panels == ["curve-1"]
    kinds = ("scores", "similarities", "calibrations", "lexical", "words", "isotropy", "trainings")
    assert [one.name for one in sections(report | {kind: [] for kind in (*kinds, "verdict")})] == ["sources"]


def test_a_run_stands_below_its_baseline_beside_it_and_the_tf1_codes(section):
    title, header, _, *rows = lines(section["scores"].tables[0])
    assert title == "Spearman × 100 of the cosine. Encoder: demo."
    assert header.endswith("This run Baseline Δ baseline Paper Δ paper TF1 code Δ TF1")
    places = [("STS-12", "wmean"), ("STS-12", "mean"), ("STS-12", "all")]
    for (task, protocol), plain, flow in zip(places, rows[0:6:2], rows[1:6:2], strict=True):
        assert plain.startswith(f"cls (demo.json) {task} test {protocol} 3,108 ")
        assert flow.startswith(f"cls + flow (run; flow learned on STS-B; seed 1234) {task} test {protocol} 3,108 ")
    assert rows[6:] == [
        "cls (demo.json) STS-B test 1,379 73.00 - - - - 73.08 -0.08",
        "cls + flow (run; seed 1234) STS-B test 1,379 78.46 73.00 +5.46 - - 78.46 (seed 1234) 0.00",
        "cls + flow (seeds, flow-target) STS-B test 1,379 81.00 ± 2.65 (median 80.00, n = 3) 73.00 +8.00 - - "
        "78.49 (seeds 1234, 2) +2.51",
    ]


def test_another_metric_is_a_table_of_its_own(report):
    scores = [report["scores"][0] | {"metric": metric} for metric in ("spearman", "auc")]
    _, found, *_ = sections(report | {"scores": scores})
    assert [table.title for table in found.tables[:2]] == [
        f"{metric} × 100 of the cosine. Encoder: demo." for metric in ("Spearman", "AUC")
    ]


@pytest.mark.parametrize(
    ("flow", "seeds", "note"),
    [
        ({}, [7], "run; seed 7"),
        ({}, [7, 8], "run"),
        ({"config": None}, [], "run; other flow configuration"),
        ({"config": "config_l2_d3_w32"}, [], "run; config_l2_d3_w32"),
        ({"learned_on": "ALLNLI"}, [], "run; flow learned on ALLNLI"),
        ({"learned_on": "sts-b", "flags": {"use_full_for_training": 0}}, [], "run; train only"),
        ({"flags": {"flow_ddi": True}}, [], "run; data-dependent initialisation"),
        ({"flags": None}, [], "run"),
    ],
)
def test_an_embeddings_note_says_what_is_not_the_default(report, flow, seeds, note):
    row = report["scores"][-2]
    row = row | {"flow": row["flow"] | flow, "seeds": seeds}
    assert lines(tables.scores_table([row]))[2].startswith(f"cls + flow ({note}) STS-B")


def test_a_figure_of_the_paper_names_its_row_and_where_that_is_not_a_table(report):
    paper = {"row": "BERT-base-flow", "mean_x100": 70.72, "source": "README"}
    row = report["scores"][0] | {"paper": paper, "difference_from_paper_x100": 10.28}
    assert "70.72 (BERT-base-flow (README)) +10.28" in lines(tables.scores_table([row]))[2]


@pytest.mark.parametrize(("off", "shown"), [(-0.51, " -0.51 (a fall) "), (-0.5, " -0.50 -"), (5.0, " +5.00 -")])
def test_a_fall_by_a_flow_is_marked(report, off, shown):
    row = report["scores"][0] | {"baseline": {"mean_x100": 80.0, "std_x100": None, "n": 1}}
    row |= {"difference_from_baseline_x100": off}
    assert shown in lines(tables.scores_table([row]))[2] + " "


def test_a_task_of_several_sets_has_a_column_for_each(section):
    title, header, _, plain, _ = lines(section["scores"].tables[1])
    assert title == "STS-12 by its sets: Spearman × 100, the mean where there are several seeds."
    assert header == "Embedding Encoder MSRpar MSRvid wmean"
    assert plain == "cls (demo.json) demo 65.43 80.00 70.00"


def test_seeds_stand_beside_table_8_where_it_is_comparable(report, section):
    _, header, _, row = lines(section["seeds"].tables[0])
    assert "Table 8" not in header
    assert row == "cls + flow (seeds, flow-target) STS-B test 1, 2, 3 3 81.00 2.65 80.00 79.00 84.00"
    paper = {"row": "BERT-base-NLI-flow", "mean_x100": 81.0, "std_x100": 0.5, "median_x100": 81.1}
    header, _, row = lines(tables.seeds_table([report["scores"][-1] | {"paper_seeds": paper}]))
    assert header.endswith("Table 8 Its mean Its std Its median")
    assert row.endswith("BERT-base-NLI-flow 81.00 0.50 81.10")


def test_calibrations_stand_beside_table_5(section):
    title, _, _, *rows = lines(section["calibrations"].tables[0])
    assert title == (
        "Spearman × 100 on STS-B, test (1,379 pairs), by calibration fitted on train, dev and test. Encoder: demo, "
        "cls. Source: calibration.json."
    )
    assert rows == [
        "none - - 73.08 - 47.29 (BERT-base, not comparable) BERT-base - 73.08 0.00",
        "sn+natsv 6 80.00 75.00 +1.92 63.51 (BERT-base, not comparable) + SN + NATSV (k=6) - - -",
        "whitening - - 79.00 +5.92 - - - -",
        "flow (config_l3_d3_w32; seeds 1, 2) - - 78.45 ± 0.07 (median 78.45, n = 2) +5.37 "
        "65.62 (BERT-base, not comparable) BERT-base-flow (target) - 78.49 (seeds 1234, 2) -0.04",
    ]


def test_correlations_of_the_close_pairs_stand_below_those_of_all(section):
    _, header, _, *rows = lines(section["lexical"].tables[0])
    assert header == "Similarity Edit distance Table 6 Δ Table 6 Gold Table 6"
    assert rows == [
        "Gold similarity -24.55 -24.61 +0.06 100.00 100.00",
        "BERT-induced similarity -30.00 -50.49 (BERT-base, not comparable) - 80.00 59.30 (BERT-base, not comparable)",
        "Gold similarity (edit distance ≤ 4, 130 pairs) 3.00 - - - -",
        "Undefined: Gold similarity with gold: undefined.",
    ]


def test_word_statistics_stand_above_table_1(section):
    title, header, _, *rows = lines(section["words"].tables[0])
    assert title.startswith("Word embeddings by frequency rank: 21,000 words among 30,522 pieces, ranked by wordfreq")
    assert header == "Measure Of 1 to 99 100 to 499 500 to 4,999 5,000 to 9,999"
    assert rows == [
        "words here 99 400 4,500 5,000",
        "mean ℓ2 norm here 0.90 0.90 0.90 0.90",
        "mean ℓ2 norm Table 1 0.95 1.04 1.22 1.45",
        "mean 3-NN ℓ2 distance here 0.70 0.70 0.70 0.70",
        "mean 3-NN ℓ2 distance Table 1 0.77 0.93 1.16 1.30",
        "mean 5-NN ℓ2 distance here 0.75 0.75 0.75 0.75",
        "mean 5-NN ℓ2 distance Table 1 0.83 0.99 1.22 1.34",
        "mean 7-NN ℓ2 distance here 0.80 0.80 0.80 0.80",
        "mean 7-NN ℓ2 distance Table 1 0.87 1.04 1.26 1.37",
        "mean 3-NN dot product here 0.70 0.70 0.70 0.70",
        "mean 3-NN dot product Table 1 0.73 0.92 1.20 1.63",
        "mean 5-NN dot product here 0.75 0.75 0.75 0.75",
        "mean 5-NN dot product Table 1 0.73 0.91 1.19 1.61",
        "mean 7-NN dot product here 0.80 0.80 0.80 0.80",
        "mean 7-NN dot product Table 1 0.72 0.90 1.17 1.60",
    ]


def test_isotropy_is_a_row_per_measure_and_bits_are_those_without_the_flow(section):
    title, header, _, constant, cosine, *_, ratio, rank, partition, bits = lines(section["isotropy"].tables[0])
    assert title == "Isotropy of 40 sentences of STS-B, dev. Encoder: demo, avg-last-2. Source: isotropy."
    assert header == "Measure without flow standard normal"
    assert (constant, cosine) == ("constant channels 0 0", "mean pairwise cosine 0.9214 0.0196")
    assert (ratio, rank) == ("participation ratio 5.5 5.2", "effective rank 5.9 5.9")
    assert partition == "partition ratio, min Z / max Z 0.1480 0.7577"
    assert bits == "bits per dimension, diagonal Gaussian -1.2500 -"


def test_a_run_says_what_it_learned_from_and_its_measures_on_dev(report):
    (record,) = report["trainings"]
    unknown = record | {"learned_on": None, "seed": None, "pairs": None, "seconds": None, "flow": None, "on_dev": {}}
    header, _, *rows = lines(tables.training_table([record, unknown]))
    assert header == "Run Learned on Pairs Seed Steps Seconds eval_loss_flow eval_pearsonr"
    assert rows == ["run (cls + flow) STS-B 8,628 1234 269 12.5 -0.6800 0.8370", "run (cls) - - 269 - - -"]


def test_where_a_figure_comes_from_is_said_as_far_as_it_is_recorded(report, section):
    *_, run, seeds, words = section["sources"].terms
    assert (run.title, run.summary) == ("run (run of run_siamese)", "demo; cls + flow; seed 1234")
    folder = report["sources"][-3]["path"]
    assert run.pairs == [
        ("Folder", folder),
        ("Encoder", "demo"),
        ("Handle", "demo"),
        ("Fingerprint", "a" * 64),
        ("Pooling", "cls"),
        ("Longest input", "64 word pieces"),
        ("Flow", "config_l3_d3_w32; learned on STS-B, all splits; 1 epoch; learning rate 0.001"),
        ("Seeds", "1234"),
        ("Protocol", "cosine; wmean, mean and all where a task is several sets"),
        ("Data", f"STS-B, train, dev and test, to learn from; 8,628 pairs; digest {'b' * 64}"),
        ("Data", "STS-12, test; 3,108 pairs; glue/STS-12"),
        ("Data", "STS-B, test; 1,379 pairs; glue/STS-B"),
        ("Versions", "tensorflow 2.19.1"),
    ]
    assert seeds.summary == "demo; cls + flow; seeds 1, 2, 3"
    assert [term for term, _ in words.pairs] == ["Folder", "Encoder", "Handle", "Fingerprint", "Versions"]
    assert section["sources"].terms[0].pairs[0][0] == "File"


@pytest.mark.parametrize(
    ("name", "fine_tuning", "fingerprint", "words"),
    [
        ("demo", None, "a" * 64, "demo"),
        ("base", "NLI", "a" * 64, "base, fine-tuned on NLI (aaaaaaaa)"),
        ("base", "NLI", None, "base, fine-tuned on NLI"),
        (None, "unknown", None, "encoder, its training is not recorded"),
        (None, "other", None, "encoder, fine-tuned"),
        (None, "masked language model", None, "encoder, after masked language modelling"),
    ],
)
def test_an_encoder_in_words(name, fine_tuning, fingerprint, words):
    encoder = {"name": name, "handle": "/my/encoder/", "fingerprint": fingerprint, "fine_tuning": fine_tuning}
    assert encoder_in_words(encoder) == words


def test_the_lead_counts_results_and_has_a_date_where_one_is_given(report):
    assert lead(report)[0].startswith("What 7 results of BERT-flow say, beside")
    assert lead(report)[1] == "Made on 2020-09-13."
    (one,) = lead(report | {"date": None, "sources": report["sources"][:1]})
    assert one.startswith("What 1 result of BERT-flow says, beside")
