"""Which encoder and flow a result is of: what its settings say, and nothing that they do not."""

import json

import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.report_records import Record
from bert_flow_tf.evaluation.report_settings import (
    encoder_name,
    encoder_of_run,
    encoder_of_stamp,
    flow_of_run,
    model_of_results,
)
from bert_flow_tf.evaluation.report_sources import run_config, scores_stamp
from tests.bert_flow_tf.evaluation import result_files as files


@pytest.mark.parametrize(
    ("handle", "name"),
    [
        ("demo", "demo"),
        ("base", "base"),
        ("https://tfhub.dev/tensorflow/bert_en_uncased_L-12_H-768_A-12/4", "base"),
        ("https://tfhub.dev/tensorflow/bert_en_uncased_L-24_H-1024_A-16/4", "large"),
        ("premodels/uncased_L-12_H-768_A-12", "base"),
        ("/premodels/uncased_L-24_H-1024_A-16/", "large"),
        ("/premodels/wwm_uncased_L-24_H-1024_A-16", None),
        ("https://tfhub.dev/tensorflow/bert_en_cased_L-12_H-768_A-12/4", None),
        ("/encoders/base", None),
        ("", None),
    ],
)
def test_only_the_handles_and_folders_of_known_encoders_name_one(handle, name):
    assert encoder_name(handle) == name


def encoder_of(folder):
    return encoder_of_run(run_config(folder), folder)


def test_an_encoder_that_no_run_trained_is_as_it_came(tmp_path):
    encoder = encoder_of(files.write_run(tmp_path / "run", **files.FLOW))
    assert (encoder.name, encoder.fine_tuning, encoder.fingerprint) == ("demo", None, files.DEMO)


def test_a_tf1_checkpoint_beside_its_configuration_is_the_encoder_of_that_folder(tmp_path):
    folder = "/premodels/uncased_L-12_H-768_A-12"
    plain = files.write_run(
        tmp_path / "plain", handle=None, bert_config=f"{folder}/bert_config.json", begins=f"{folder}/bert_model.ckpt"
    )
    config = Record("config.json", run_config(plain).values | {"encoder_trained": False})
    assert encoder_of_run(config, plain).name == "base"
    assert encoder_of_run(config, plain).fine_tuning is None
    config.values["encoder_flags"]["init_checkpoint"] = "/elsewhere/model.ckpt"
    assert encoder_of_run(config, plain).fine_tuning == "unknown"


def tuned(tmp_path, **changes):
    """Folder of a run on a frozen encoder that begins with a run which trained it."""
    files.write_run(tmp_path / "nli", **(files.NLI | changes))
    return files.write_run(
        tmp_path / "flow", fingerprint=files.TUNED, begins=str(tmp_path / "nli/model.ckpt-9"), **files.FLOW
    )


def test_an_encoder_of_the_papers_nli_run_is_fine_tuned_on_nli_and_one_with_that_run(tmp_path):
    encoder = encoder_of(tuned(tmp_path))
    assert (encoder.name, encoder.fine_tuning, encoder.fingerprint) == ("demo", "NLI", files.TUNED)
    assert encoder.weights == encoder_of(tmp_path / "nli").weights
    assert encoder_of(tmp_path / "nli").fingerprint is None


@pytest.mark.parametrize(
    "change",
    [{"task_name": "STS-B"}, {"num_train_epochs": 2.0}, {"learning_rate": 5e-5}, {"train_batch_size": 32}],
)
def test_any_other_fine_tuning_is_not_the_papers(tmp_path, change):
    assert encoder_of(tuned(tmp_path, **change)).fine_tuning == "other"


def test_runs_that_were_moved_together_still_know_each_other(tmp_path):
    run = tuned(tmp_path)
    config = run_config(run)
    config.values["encoder_flags"]["init_checkpoint"] = "/old/place/nli/model.ckpt-9"
    assert encoder_of_run(config, run).fine_tuning == "NLI"
    config.values["encoder_flags"]["init_checkpoint"] = "/old/place/gone/model.ckpt-9"
    assert encoder_of_run(config, run).fine_tuning == "unknown"


def test_the_flow_is_its_configurations_name_and_what_it_was_learned_with(tmp_path):
    flow = flow_of_run(run_config(files.write_run(tmp_path / "run", flow_ddi=True, **files.FLOW)))
    assert (flow.config, flow.learned_on, flow.begun) == ("config_l3_d3_w32", "STS-B", False)
    assert flow.flags["use_full_for_training"] == 1 and flow.flags["flow_ddi"] is True
    assert flow_of_run(run_config(files.write_run(tmp_path / "plain", num_examples=0))) is None


def test_a_flow_of_ones_own_has_no_name_and_a_broken_one_is_refused(tmp_path):
    config = run_config(files.write_run(tmp_path / "run", **files.FLOW))
    config.values["flow_config"]["depth"] = 4
    assert flow_of_run(config).config is None
    config.values["flow_config"]["depth"] = "many"
    with pytest.raises(UserError, match="flow_config: depth: found 'many'"):
        flow_of_run(config)


def test_fine_tuning_on_fewer_nli_pairs_is_not_the_papers(tmp_path):
    config = run_config(files.write_run(tmp_path / "nli", **files.NLI))
    assert encoder_of_run(config, tmp_path / "nli").fine_tuning == "NLI"
    config.values["data"]["num_examples"] = 9840
    assert encoder_of_run(config, tmp_path / "nli").fine_tuning == "other"


def test_a_flow_that_begins_with_another_says_so(tmp_path):
    first = files.write_run(tmp_path / "first", **files.FLOW)
    second = files.write_run(tmp_path / "second", begins=str(first / "model.ckpt-9"), **files.FLOW)
    assert flow_of_run(run_config(second)).begun
    assert encoder_of(second).fine_tuning is None


def test_results_of_a_run_know_its_settings_while_its_folder_is_there(tmp_path):
    run = files.write_run(tmp_path / "run", seed=7, **files.FLOW)
    record = files.run_record(run / "model.ckpt-269", seed=7, dupe_factor=2)
    model = Record("evaluation.json", files.model_record(record, config="config_l3_d3_w32"))
    encoder, flow, seeds = model_of_results(model)
    assert (encoder.name, flow.flags["dupe_factor"], seeds) == ("demo", 1, [7])
    (run / "config.json").unlink()
    encoder, flow, seeds = model_of_results(model)
    assert (encoder.name, flow.flags["dupe_factor"], seeds) == ("demo", 2, [7])
    assert (flow.config, flow.learned_on, flow.pairs) == ("config_l3_d3_w32", "sts-b", 8628)


def test_results_of_a_saved_model_have_a_flow_of_which_no_training_is_known():
    model = Record("evaluation.json", files.model_record(handle="/my/model", config="config_l3_d3_w32"))
    encoder, flow, seeds = model_of_results(model)
    assert (encoder.name, flow.config, flow.learned_on, flow.flags, seeds) == (None, "config_l3_d3_w32", None, None, [])


@pytest.mark.parametrize("change", [{"fingerprint": "f" * 64}, {"flow": 0, "flow_loss": 0}])
def test_a_folder_that_holds_another_run_by_now_is_not_asked(tmp_path, change):
    run = files.write_run(tmp_path / "run", **(files.FLOW | change))
    record = files.run_record(run / "model.ckpt-269", seed=5, dupe_factor=2)
    model = Record("evaluation.json", files.model_record(record, config="config_l2_d3_w32"))
    encoder, flow, seeds = model_of_results(model)
    assert (encoder.fingerprint, flow.config, flow.flags["dupe_factor"]) == (files.DEMO, "config_l2_d3_w32", 2)
    assert seeds == [5]


def test_an_encoder_that_a_run_trained_is_not_known_once_its_folder_is_gone(tmp_path):
    record = files.run_record(tmp_path / "gone" / "model.ckpt-269", encoder_trained=True)
    encoder, _, _ = model_of_results(Record("evaluation.json", files.model_record(record)))
    assert (encoder.fine_tuning, encoder.fingerprint) == ("unknown", None)


def test_a_stamp_of_the_recipe_knows_the_encoder_by_its_name(tmp_path):
    folder = files.write_stamp(tmp_path, "demo_STS-B_cls", "STS-B, cls", 0.73, bert_hub="demo")
    encoder = encoder_of_stamp(scores_stamp(folder), folder)
    assert (encoder.name, encoder.fine_tuning) == ("demo", None)
    folder = files.write_stamp(tmp_path, "other", "STS-B, cls", 0.73, bert_hub="9" * 64)
    encoder = encoder_of_stamp(scores_stamp(folder), folder)
    assert (encoder.name, encoder.fine_tuning) == (None, "unknown")


def test_a_stamp_after_nli_knows_the_encoder_by_the_nli_run_or_by_a_flow_on_the_same_weights(tmp_path):
    files.write_run(tmp_path / "nli", **files.NLI)
    files.write_stamp(tmp_path, "nli", "NLI fine-tuning", None, bert_hub="demo")
    settings = json.loads((tmp_path / "recipe" / "nli.json").read_text())["settings"]
    weights = {"NLI fine-tuning": files.settings_digest(settings)}
    folder = files.write_stamp(tmp_path, "nli_STS-B_avg", "STS-B, avg", 0.74, **weights)
    encoder = encoder_of_stamp(scores_stamp(folder), folder)
    assert (encoder.name, encoder.fine_tuning, encoder.fingerprint) == ("demo", "NLI", None)
    tuned(tmp_path)
    files.write_stamp(tmp_path, "flow", "flow on STS-B", None, **weights)
    encoder = encoder_of_stamp(scores_stamp(folder), folder)
    assert (encoder.fine_tuning, encoder.fingerprint) == ("NLI", files.TUNED)
