"""Evaluation and prediction write the original's files."""

import json

import numpy as np
import pytest
from scipy import special, stats

from bert_flow_tf.original import scoring
from bert_flow_tf.original.build import build_model
from bert_flow_tf.original.run import Run
from bert_flow_tf.original.settings import RunSettings
from bert_flow_tf.original.start import check
from bert_flow_tf.report.collected import read_result
from bert_flow_tf.tasks.protocols import read_predictions, score_predictions
from bert_flow_tf.tasks.tasks import get_task, read_split
from tests.bert_flow_tf import small_runs
from tests.refusals import user_error

STSB = get_task("sts-b")


@pytest.fixture(scope="module")
def make_run(tiny_source, tmp_path_factory):
    """Return a run and its untrained encoder."""
    stsb_dir, models = small_runs.write_stsb(tmp_path_factory.mktemp("stsb")), {}

    def make(output, task=STSB, **changes):
        values = {
            "task_name": task.name,
            "data_dir": str(stsb_dir),
            "output_parent_dir": str(output),
        }
        values |= {"exp_name": "run", "max_seq_length": 12, "do_eval": True}
        settings = RunSettings.of(**values | changes)
        run = Run(settings.output_dir, settings)
        config = run.config(tiny_source)
        key = (config.model.low_dim, config.num_labels, config.model.flow is None)
        if key not in models:
            models[key] = build_model(tiny_source, config.model, num_labels=config.num_labels)
        return run, scoring.PairScorer(models[key], config.model, step=12, max_seq_length=12)

    return make


@pytest.mark.differs("does not replace different results")
def test_predictions_are_cosines_or_embeddings_of_splits(make_run, tmp_path):
    def write(output, **changes):
        run, trained = make_run(output, **changes)
        run.predict(trained)
        (path,) = (output / "run").glob("*.tsv")
        return path.name, path.read_text().splitlines()

    name, lines = write(tmp_path / "a")
    assert name == "test_results.tsv" and len(lines) == 7 and len(set(lines)) > 3
    name, pooled = write(tmp_path / "pooled", predict_pool=True)
    assert name == "test_pooled.tsv"
    for line, cosine in zip(pooled, lines, strict=True):
        a, b = map(np.array, json.loads(line).values())
        assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) == pytest.approx(
            float(cosine), abs=1e-5
        )
    # A full prediction is test, then dev, then train.
    full, dev = (
        write(tmp_path / "b", do_predict_on_full=True)[1],
        write(tmp_path / "c", do_predict_on_dev=True)[1],
    )
    assert len(full) == 7 + 10 + 24
    # Batches differ, so last bits may.
    np.testing.assert_allclose(np.float64(full[:17]), np.float64(lines + dev), atol=2e-6)
    with user_error("--overwrite"):
        write(tmp_path / "a", low_dim=8)
    assert write(tmp_path / "a") == ("test_results.tsv", lines)
    assert write(tmp_path / "a", low_dim=8, overwrite=True)[1] != lines


def test_the_record_of_predictions_has_their_scores(make_run, tmp_path):
    data = small_runs.write_stsb(tmp_path / "STS-B", gold=True)
    run, scorer = make_run(tmp_path, data_dir=str(data))
    run.predict(scorer)
    scores = read_result(run.folder / "test_results.json").tasks["stsb"]
    predictions = read_predictions(run.folder / "test_results.tsv")
    expected = score_predictions(predictions, STSB, tmp_path, "test")
    assert {name: one["all"] for name, one in scores.by_metric.items()} == pytest.approx(expected)
    assert (scores.title, scores.split, scores.pairs) == ("STS-B", "test", 7)
    # Without gold scores of the test set there is a record without scores.
    run, scorer = make_run(tmp_path / "without")
    run.predict(scorer)
    assert read_result(run.folder / "test_results.json").tasks["stsb"].by_metric == {}


def test_files_have_the_originals_keys_order_and_digits(make_run, tmp_path, monkeypatch):
    rows = [[*"-------", "w1", "w2", score] for score in ("5", "0", "2.5")]
    small_runs.write_tsv(tmp_path / "dev.tsv", [small_runs.STSB_HEADER, *rows])
    third, tiny = 1 / 3, 1e-5
    values = {
        "cos_similarity": [third, 0, third / 2],
        "embedding_a": [[third, -2]] * 3,
        "embedding_b": [[tiny, 0]] * 3,
    }
    values |= {"example_loss": [third, tiny, 0.5], "flow_example_loss": [1.5, -1, 1e6]}
    outputs = {name: np.array(rows, np.float32) for name, rows in values.items()}
    monkeypatch.setattr(scoring.PairScorer, "outputs", lambda *_: outputs)
    for pooled in (False, True):
        changes = {
            "data_dir": str(tmp_path),
            "do_predict_on_dev": True,
            "predict_pool": pooled,
            "eval_batch_size": 2,
        }
        run, trained = make_run(tmp_path, **changes)
        run.predict(trained)
    run.evaluate(trained)
    # The original writes str() of 32-bit numbers, and JSON of numbers rounded to six digits.
    assert {path.name: path.read_text() for path in run.folder.glob("*.t??")} == {
        "dev_results.tsv": "0.33333334\n0.0\n0.16666667\n",
        "dev_pooled.tsv": '{"embedding_a": [0.333333, -2.0], "embedding_b": [1e-05, 0.0]}\n' * 3,
        "eval_results.txt": "eval_loss = 0.27778113\neval_loss_flow = 333333.5\neval_loss_total = "
        "333333.78\n"
        "eval_pearsonr = 1.0\nglobal_step = 12\nloss = 0.33333585\n",
    }


def test_evaluation_has_scaled_labels_and_both_sentences_bits(make_run, tmp_path):
    run, scorer = make_run(tmp_path, flow=1, flow_model_config=small_runs.small_flow_file(tmp_path))
    found, examples = run.evaluated(scorer), read_split(STSB, run.settings.data.data_dir, "dev")
    gold = examples.labels / 5
    cosines = scorer.outputs(examples, STSB)["cos_similarity"]
    assert found["eval_pearsonr"] == pytest.approx(
        stats.pearsonr(cosines, gold).statistic, abs=1e-5
    )
    assert found["eval_loss"] == pytest.approx(((cosines - gold) ** 2).mean(), abs=1e-5)
    u = make_run(tmp_path)[1].outputs(examples, STSB)
    bits = scorer.model.flow.bits_per_dim(u["embedding_a"]) + scorer.model.flow.bits_per_dim(
        u["embedding_b"]
    )
    assert found["eval_loss_flow"] == pytest.approx(np.mean(bits), rel=1e-5)


def test_evaluation_of_classes_is_their_accuracy(make_run, tmp_path):
    task = get_task("mnli")
    data = small_runs.write_mnli(tmp_path / "mnli")
    run, scorer = make_run(tmp_path, task=task, data_dir=str(data))
    # The further apart a pair is, the more it is of the last class. The last has four pairs, the
    # first has one.
    weights = np.zeros(scorer.model.output_weights.shape, np.float32)
    weights[:, 64:] = np.array([[-1.0], [0.0], [1.0]])
    scorer.model.output_weights.assign(weights)
    found = run.evaluated(scorer)
    examples = read_split(task, data, "dev")
    labels, outputs = examples.labels.astype(int), scorer.outputs(examples, task)
    logits = np.abs(outputs["embedding_a"] - outputs["embedding_b"]) @ weights[:, 64:].T
    hits = np.mean(logits.argmax(axis=-1) == labels)
    assert hits != np.mean(logits.argmin(axis=-1) == labels)
    assert found["eval_accuracy"] == pytest.approx(hits)
    log_likelihoods = special.log_softmax(logits, axis=-1)[np.arange(9), labels]
    assert found["eval_loss"] == pytest.approx(-log_likelihoods.mean(), rel=1e-4)


@pytest.mark.differs("`--auc`")
def test_auc_flag_adds_the_area_under_the_curve(make_run, tmp_path):
    task, header = (
        get_task("mrpc-regression"),
        ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
    )
    pairs = small_runs.random_pairs(8, small_runs.TINY_WORDS, 3)
    rows = [["1" if share > 0.5 else "0", "1", "2", a, b] for a, b, share in pairs]
    small_runs.write_tsv(tmp_path / "dev.tsv", [header, *rows])
    run, scorer = make_run(tmp_path, task=task, data_dir=str(tmp_path), auc=True)
    cosines = scorer.outputs(read_split(task, tmp_path, "dev"), task)["cos_similarity"]
    is_one = np.array([row[0] == "1" for row in rows])
    ranked = np.mean(cosines[is_one, np.newaxis] > cosines[~is_one])
    assert run.evaluated(scorer)["eval_auc"] == pytest.approx(ranked, abs=1e-6)


def test_a_correlation_without_labels_is_no_number(make_run, tmp_path):
    small_runs.write_tsv(tmp_path / "full.txt", [["w1 w2", "w1"], ["w3", "w4"]])
    run, scorer = make_run(tmp_path, task=get_task("sts-12"), data_dir=str(tmp_path))
    assert np.isnan(run.evaluated(scorer)["eval_pearsonr"])


def test_what_could_only_fail_later_is_named_before(tmp_path):
    for changes, message in (
        ({"task_name": "MNLI", "do_predict": True}, "do_predict: found task mnli"),
        ({"do_eval": True, "auc": True}, "auc: found task sts-b"),
        ({"do_train": True, "early_stopping": True}, "dev.tsv: no such file"),
        ({"do_predict": True}, "test.tsv: no such file"),
    ):
        values = {
            "task_name": "STS-B",
            "data_dir": str(tmp_path),
            "output_parent_dir": "out",
            "bert_hub": "demo",
        }
        with user_error(message):
            check(RunSettings.of(**values | changes))
