"""Evaluation and prediction write the original's files."""

import json

import numpy as np
import pytest
from scipy import special, stats

from bert_flow_tf.data.tasks import get_task
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.errors import UserError
from bert_flow_tf.model.build import build_model, run_config
from bert_flow_tf.runs.settings import Settings
from bert_flow_tf.training import scoring
from tests.bert_flow_tf import small_runs
from tests.refusals import user_error

STSB = get_task("sts-b")
SIZES = {"test": 7, "dev": 10, "train": 24}


@pytest.fixture(scope="module")
def stsb_dir(tmp_path_factory):
    return small_runs.write_stsb(tmp_path_factory.mktemp("stsb"))


@pytest.fixture(scope="module")
def make_scorer(tiny_source, stsb_dir):
    """Return settings and the scorer of an untrained encoder."""
    models = {}

    def make(output, task=STSB, **changes):
        values = {"task_name": task.name, "data_dir": str(stsb_dir), "output_parent_dir": str(output)}
        settings = Settings(**values | {"exp_name": "run", "max_seq_length": 12} | changes)
        config = run_config(settings, task, tiny_source, None)
        key = (config.model.low_dim, config.num_labels, config.model.flow is None)
        if key not in models:
            models[key] = build_model(tiny_source, config.model, num_labels=config.num_labels)
        return settings, scoring.Scorer(models[key], settings, record=config.model)

    return make


@pytest.fixture(scope="module")
def write(make_scorer):
    """Write predictions; return the file's name and lines."""

    def write(output, **changes):
        settings, scorer = make_scorer(output, **changes)
        scoring.write_predictions(settings, STSB, scorer)
        (path,) = (output / "run").glob("*.tsv")
        return path.name, path.read_text().splitlines()

    return write


def results(scorer, settings, task=STSB, step=0):
    """Write an evaluation; return its numbers by name, in order."""
    scoring.write_evaluation(settings, task, scorer, step)
    lines = (settings.output_dir / "eval_results.txt").read_text().splitlines()
    return {name: float(value) for name, value in (line.split(" = ") for line in lines)}


def test_predictions_are_cosines_or_embeddings_in_file_order(write, stsb_dir, tmp_path):
    name, lines = write(tmp_path / "a")
    assert name == "test_results.tsv"
    assert len(lines) == SIZES["test"] and len(set(lines)) > 3
    turned = tmp_path / "turned"
    header, *rows = (stsb_dir / "test.tsv").read_text().splitlines()
    small_runs.write_tsv(turned / "test.tsv", [row.split("\t") for row in [header, *rows[::-1]]])
    _, backwards = write(tmp_path / "b", data_dir=str(turned))
    np.testing.assert_allclose(np.float64(backwards[::-1]), np.float64(lines), atol=1e-6)
    name, pooled = write(tmp_path / "pooled", predict_pool=True)
    assert name == "test_pooled.tsv"
    for line, cosine in zip(pooled, lines, strict=True):
        pair = json.loads(line)
        assert list(pair) == ["embedding_a", "embedding_b"]
        a, b = map(np.array, pair.values())
        assert len(a) == len(b) == 32 and all(x == round(x, 6) for x in [*a, *b])
        assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) == pytest.approx(float(cosine), abs=1e-5)


def test_a_full_prediction_is_test_then_dev_then_train(write, tmp_path):
    _, full = write(tmp_path / "full", do_predict_on_full=True)
    assert len(full) == sum(SIZES.values())
    _, test = write(tmp_path / "test")
    _, dev = write(tmp_path / "dev", do_predict_on_dev=True)
    # Batches differ, so last bits may.
    np.testing.assert_allclose(np.float64(full[: len(test + dev)]), np.float64(test + dev), atol=2e-6)


@pytest.mark.differs("Batches are padded")
def test_padding_to_the_limit_changes_no_result(write, tmp_path, monkeypatch):
    pack, lengths = Tokenizer.pack, []

    def packed(*arguments, **options):
        tokens = pack(*arguments, **options)
        lengths.append(tokens["input_word_ids"].shape[1])
        return tokens

    monkeypatch.setattr(Tokenizer, "pack", packed)
    _, short = write(tmp_path / "short")
    # A sentence has six words at most.
    assert max(lengths) <= 8
    lengths.clear()
    _, padded = write(tmp_path / "padded", pad_to_max_seq_length=True)
    assert set(lengths) == {12}
    np.testing.assert_allclose(np.float64(padded), np.float64(short), atol=1e-5)


def test_evaluation_has_a_sorted_line_for_each_metric(make_scorer, write, stsb_dir, tmp_path):
    settings, scorer = make_scorer(tmp_path)
    found = results(scorer, settings, step=12)
    assert list(found) == ["eval_loss", "eval_pearsonr", "global_step", "loss"]
    assert found["global_step"] == 12
    cosines = np.float64(write(tmp_path / "dev", do_predict_on_dev=True)[1])
    gold = np.loadtxt(stsb_dir / "dev.tsv", delimiter="\t", skiprows=1, usecols=9, comments=None) / 5
    losses = (cosines - gold) ** 2
    assert found["eval_pearsonr"] == pytest.approx(stats.pearsonr(cosines, gold).statistic, abs=1e-5)
    assert found["eval_loss"] == pytest.approx(losses.mean(), abs=1e-5)
    # Two batches: 8 pairs, then 2, which count as much.
    assert found["loss"] == pytest.approx((losses[:8].mean() + losses[8:].mean()) / 2, abs=1e-5)


def test_evaluation_of_a_flow_adds_the_loss_of_both_sentences(make_scorer, tmp_path):
    settings, scorer = make_scorer(tmp_path, flow=1, flow_model_config=small_runs.small_flow_file(tmp_path))
    found = results(scorer, settings)
    assert list(found) == ["eval_loss", "eval_loss_flow", "eval_loss_total", "eval_pearsonr", "global_step", "loss"]
    _, without_flow = make_scorer(tmp_path)
    u = without_flow.outputs(scoring.read_split(STSB, settings.data_dir, "dev"), np.zeros(10, np.float32))
    bits = scorer.model.flow.bits_per_dim(u["embedding_a"]) + scorer.model.flow.bits_per_dim(u["embedding_b"])
    assert found["eval_loss_flow"] == pytest.approx(np.mean(bits), rel=1e-5)
    assert found["eval_loss"] > 0.01
    assert found["eval_loss_total"] == pytest.approx(found["eval_loss"] + found["eval_loss_flow"], rel=1e-5)


def test_evaluation_of_classes_is_their_accuracy(make_scorer, tmp_path):
    task = get_task("mnli")
    data = small_runs.write_mnli(tmp_path / "mnli")
    settings, scorer = make_scorer(tmp_path, task=task, data_dir=str(data))
    # The further apart a pair is, the more it is of the last class. The last has four pairs, the first has one.
    weights = np.zeros(scorer.model.output_weights.shape, np.float32)
    weights[:, 64:] = np.array([[-1.0], [0.0], [1.0]])
    scorer.model.output_weights.assign(weights)
    found = results(scorer, settings, task)
    assert list(found) == ["eval_accuracy", "eval_loss", "global_step", "loss"]
    examples = scoring.read_split(task, data, "dev")
    labels = np.array(examples.labels, np.int32)
    outputs = scorer.outputs(examples, labels)
    a, b = outputs["embedding_a"], outputs["embedding_b"]
    logits = np.concatenate([a, b, np.abs(a - b)], axis=-1) @ weights.T
    hits = np.sum(logits.argmax(axis=-1) == labels)
    assert hits != np.sum(logits.argmin(axis=-1) == labels)
    assert found["eval_accuracy"] == pytest.approx(hits / 9)
    log_likelihoods = special.log_softmax(logits, axis=-1)[np.arange(9), labels]
    assert found["eval_loss"] == pytest.approx(-log_likelihoods.mean(), rel=1e-4)


@pytest.mark.differs("`--auc`")
def test_auc_is_evaluated_where_it_is_asked_for(make_scorer, tmp_path):
    task, header = get_task("mrpc-regression"), ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    pairs = small_runs.random_pairs(8, small_runs.TINY_WORDS, 3)
    rows = [["1" if share > 0.5 else "0", "1", "2", a, b] for a, b, share in pairs]
    small_runs.write_tsv(tmp_path / "mrpc" / "dev.tsv", [header, *rows])
    settings, scorer = make_scorer(tmp_path, task=task, data_dir=str(tmp_path / "mrpc"), auc=True)
    outputs = scorer.outputs(scoring.read_split(task, settings.data_dir, "dev"), np.zeros(8, np.float32))
    is_one = np.array([row[0] == "1" for row in rows])
    cosines = outputs["cos_similarity"]
    ranked = np.mean(cosines[is_one, np.newaxis] > cosines[~is_one])
    assert results(scorer, settings, task)["eval_auc"] == pytest.approx(ranked, abs=1e-6)


def test_a_correlation_without_labels_is_no_number(make_scorer, tmp_path):
    rows = [[a, b] for a, b, _ in small_runs.random_pairs(5, small_runs.TINY_WORDS, 1)]
    small_runs.write_tsv(tmp_path / "STS-12" / "full.txt", rows)
    task = get_task("sts-12")
    settings, scorer = make_scorer(tmp_path, task=task, data_dir=str(tmp_path / "STS-12"))
    assert np.isnan(results(scorer, settings, task)["eval_pearsonr"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task_name": "MNLI", "do_predict": True}, "do_predict: found task mnli"),
        ({"do_eval": True, "auc": True}, "auc: found task sts-b"),
        ({"do_train": True, "early_stopping": True}, "dev.tsv: no such file"),
        ({"do_predict": True}, "test.tsv: no such file"),
    ],
)
def test_what_could_only_fail_later_is_named_before(tmp_path, changes, message):
    values = {"task_name": "STS-B", "data_dir": str(tmp_path), "output_parent_dir": "out"} | changes
    with user_error(message):
        scoring.check_results(Settings(**values), get_task(values["task_name"]))


@pytest.mark.differs("does not replace different results")
def test_results_of_other_settings_are_not_replaced(make_scorer, write, tmp_path):
    _, lines = write(tmp_path)
    settings, scorer = make_scorer(tmp_path, low_dim=8)
    with pytest.raises(UserError, match="--overwrite"):
        scoring.write_predictions(settings, STSB, scorer)
    assert (tmp_path / "run" / "test_results.tsv").read_text().splitlines() == lines
    settings_overwriting, _ = make_scorer(tmp_path, low_dim=8, overwrite=True)
    scoring.write_predictions(settings_overwriting, STSB, scorer)
    assert (tmp_path / "run" / "test_results.tsv").read_text().splitlines() != lines
