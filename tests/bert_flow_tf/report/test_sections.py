"""A report's sections in words: what is shown, in which order, and where it comes from."""

import pytest

from bert_flow_tf.report.sections import encoder_in_words, lead, sections
from tests.bert_flow_tf.report import collected


def section(name, **changes):
    (found,) = [one for one in sections(collected.report(**changes)) if one.name == name]
    return found


def test_every_kind_of_result_has_a_section_and_an_empty_one_is_left_out():
    names = ["scores", "seeds", "calibrations", "lexical", "words", "isotropy", "training", "sources"]
    assert [one.name for one in sections(collected.report())] == names
    kinds = ("scores", "calibrations", "lexical", "words", "isotropy", "trainings")
    assert [one.name for one in sections(collected.report(**{kind: [] for kind in kinds}))] == ["sources"]


def test_scores_of_one_encoder_and_metric_are_a_table_a_run_below_its_baseline():
    plain, flow, other = (collected.score(name, 70.0, task=task) for name, task in ("aS", "bT", "cS"))
    auc = collected.score("d", 70.0, metric="auc")
    spearman, of_auc = section("scores", scores=[plain, flow, other, auc]).tables
    assert spearman.title == "Spearman × 100 of the cosine. Encoder: demo."
    assert [row[0].note for row in spearman.rows] == ["a", "c", "b"]
    assert (of_auc.title, len(of_auc.rows)) == ("AUC × 100 of the cosine. Encoder: demo.", 1)


def test_a_section_has_its_plots_and_titles_that_say_where_a_table_comes_from():
    (table,) = section("calibrations").tables
    assert (section("seeds").plots, section("words").plots) == (["seeds-1"], [])
    assert table.title == (
        "Spearman × 100 on STS-B, test (1,379 pairs), by calibration fitted on train, dev and test. "
        "Encoder: demo, avg. Source: calibration.json."
    )
    assert section("isotropy").tables[0].title.startswith("Isotropy of 3,000 sentences of STS-B, dev.")


def test_where_a_figure_comes_from_is_said_as_far_as_it_is_recorded():
    run, words = section("sources").terms
    assert (run.title, run.summary) == ("runs (run of run_siamese)", "demo; cls + flow; seeds 1, 2, 3")
    assert dict(run.pairs) == {
        "Folder": "/data/runs",
        "Encoder": "demo",
        "Handle": "demo",
        "Fingerprint": "d" * 64,
        "Pooling": "cls",
        "Longest input": "64 word pieces",
        "Flow": "config_l3_d3_w32; learned on STS-B, all splits; 1 epoch; learning rate 0.001",
        "Seeds": "1, 2, 3",
        "Protocol": "cosine",
        "Data": f"STS-B, test; 1,379 pairs; glue/STS-B; digest {'b' * 64}",
        "Versions": "tensorflow 2.19.1",
    }
    assert (words.summary, words.pairs) == ("", [("Folder", "/data/runs")])


@pytest.mark.parametrize(
    ("name", "fine_tuning", "fingerprint", "words"),
    [
        ("demo", None, "a" * 64, "demo"),
        ("base", "NLI", "a" * 64, "base, fine-tuned on NLI (aaaaaaaa)"),
        ("base", "NLI", None, "base, fine-tuned on NLI"),
        (None, "unknown", None, "encoder, its training is not recorded"),
        (None, "other", None, "encoder, fine-tuned"),
    ],
)
def test_an_encoder_in_words(name, fine_tuning, fingerprint, words):
    encoder = {"name": name, "handle": "/my/encoder/", "fingerprint": fingerprint, "fine_tuning": fine_tuning}
    assert encoder_in_words(encoder) == words


def test_the_lead_counts_results_and_has_a_date_where_one_is_given():
    assert lead(collected.report())[0].startswith("What 2 results of BERT-flow say, beside")
    one = collected.report(date=None, sources=collected.report()["sources"][:1])
    assert len(lead(one)) == 1 and lead(one)[0].startswith("What 1 result of BERT-flow says, beside")
