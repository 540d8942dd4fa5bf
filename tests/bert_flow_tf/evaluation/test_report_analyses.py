"""Analyses and trainings become tables beside the paper's, read from what the commands write."""

import json

import numpy as np
import pytest

from bert_flow_tf.commands.results import write_results_folder
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation import report_analyses
from bert_flow_tf.evaluation.isotropy import isotropic_reference, isotropy
from bert_flow_tf.evaluation.plots import spectrum_figure
from bert_flow_tf.evaluation.report_analysis_tables import training_section
from bert_flow_tf.evaluation.report_sources import find_sources
from tests.bert_flow_tf.evaluation import result_files as files


def source_of(path):
    ((source,), _) = find_sources([path])
    return source


def test_lexical_correlations_stand_beside_table_6_on_the_dev_set_of_stsb_alone(tmp_path):
    record = report_analyses.lexical(source_of(files.write_lexical(tmp_path / "dev")))
    gold, bert = record["rows"]
    assert gold["edit distance"] == {"value_x100": -24.55, "paper_x100": -24.61, "difference_x100": pytest.approx(0.06)}
    assert bert["edit distance"] == {"value_x100": -30.0, "paper_x100": -50.49, "difference_x100": None}
    assert (bert["gold"]["paper_x100"], bert["gold"]["difference_x100"]) == (59.3, None)
    assert record["close"]["rows"][0]["edit distance"]["paper_x100"] is None
    for task, split in (("sts-b", "test"), ("sick-r", "dev")):
        folder = files.write_lexical(tmp_path / f"{task}-{split}", task=task, split=split)
        rows = report_analyses.lexical(source_of(folder))["rows"]
        assert {cell["paper_x100"] for row in rows for cell in (row["gold"], row["edit distance"])} == {None}


def test_words_stand_beside_table_1_bin_by_bin(tmp_path):
    record = report_analyses.words(source_of(files.write_words(tmp_path / "words")))
    assert [(row["measure"], row["values"][0], row["paper"][0]) for row in record["rows"]] == [
        ("mean ℓ2 norm", 0.9, 0.95),
        ("mean 3-NN ℓ2 distance", 0.7, 0.77),
        ("mean 5-NN ℓ2 distance", 0.75, 0.83),
        ("mean 7-NN ℓ2 distance", 0.8, 0.87),
        ("mean 3-NN dot product", 0.7, 0.73),
        ("mean 5-NN dot product", 0.75, 0.73),
        ("mean 7-NN dot product", 0.8, 0.72),
    ]


def test_other_bins_than_the_papers_are_refused(tmp_path):
    folder = files.write_words(tmp_path / "words")
    path = folder / "results.json"
    record = json.loads(path.read_text())
    files.write_json(path, record | {"bins": record["bins"][:3]})
    with pytest.raises(UserError, match="bins: found 3 of them, expected the paper's 4"):
        report_analyses.words(source_of(folder))


def write_isotropy(folder):
    """The folder of an isotropy analysis, of measures that were measured and written by the code that does so."""
    measured = isotropy(np.random.default_rng(1).normal(size=(40, 6)) + 3)
    reference = isotropic_reference(40, 6)
    model = files.model_record(pooling="avg")
    record = {
        "analysis": "isotropy",
        "format_version": 1,
        "flow": False,
        "model": model,
        "task": "sts-b",
        "split": "dev",
        "sentences": 40,
        "measures": {"without flow": measured.to_dict()},
        "reference": reference.to_dict(),
        "bits_per_dim": {"diagonal Gaussian": -1.25},
    }
    write_results_folder(folder, record, {"spectrum": spectrum_figure({"without flow": measured}, reference)})
    return measured


def test_isotropy_is_what_was_measured_beside_the_standard_normal(tmp_path):
    measured = write_isotropy(tmp_path / "isotropy")
    record = report_analyses.isotropy(source_of(tmp_path / "isotropy"))
    assert list(record["measures"]) == ["without flow", "standard normal"]
    assert record["measures"]["without flow"]["mean_cosine"] == measured.mean_cosine
    assert record["bits_per_dim"] == {"diagonal Gaussian": -1.25}
    assert (record["task"], record["encoder"]["name"], record["encoder"]["pooling"]) == ("STS-B", "demo", "avg")


def test_training_is_what_the_run_left(tmp_path):
    record = report_analyses.training(source_of(files.write_run(tmp_path / "run", **files.FLOW)))
    assert (record["steps"], record["seconds"], record["pairs"], record["seed"]) == (269, 12.5, 8628, 1234)
    assert record["on_dev"] == {"eval_loss_flow": -0.68, "eval_pearsonr": 0.837, "global_step": 269}


def test_a_correlation_that_was_undefined_is_left_out_and_any_other_line_refused(tmp_path):
    run = files.write_run(tmp_path / "run", **files.FLOW)
    (run / "eval_results.txt").write_text("eval_pearsonr = nan\nloss = 1e-05\n")
    assert report_analyses.training(source_of(run))["on_dev"] == {"loss": 1e-5}
    (run / "eval_results.txt").write_text("loss = 1.0\nloss = inf\n")
    with pytest.raises(UserError, match=r"eval_results.txt, line 2: found 'loss = inf', expected a name"):
        report_analyses.training(source_of(run))


def test_embeddings_made_elsewhere_have_an_encoder_that_is_not_known(tmp_path):
    record = files.calibration() | {"model": None, "encoder": {"embeddings": "mine.npy"}}
    path = files.write_json(tmp_path / "c.json", record)
    encoder = report_analyses.calibration(source_of(path))["encoder"]
    assert (encoder["handle"], encoder["name"], encoder["fine_tuning"]) == ("mine.npy", None, "unknown")


def test_run_converted_from_the_original_says_nothing_of_its_training(tmp_path):
    """As `bert-flow convert --tf1_flow` writes it."""
    folder = files.write_run(tmp_path / "run", flow=1, flow_loss=1, num_examples=0)
    config = json.loads((folder / "config.json").read_text())
    config |= {"flags": {"tf1_checkpoint": "model.ckpt-7 0123"}, "data": {"num_examples": None, "fingerprint": None}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "train_results.json").write_text(json.dumps({"steps": 7, "converted_from": "model.ckpt-7"}))
    (folder / "eval_results.txt").unlink()
    record = report_analyses.training(source_of(folder))
    assert record["steps"] == 7
    assert {record[key] for key in ("learned_on", "seed", "pairs", "data_fingerprint", "seconds")} == {None}
    assert (record["flow"]["config"], record["flow"]["flags"]) == ("config_l3_d3_w32", None)
    (row,) = training_section({"trainings": [record]}).tables[0].rows
    assert [cell.text for cell in row[1:4]] == ["", "", ""]
