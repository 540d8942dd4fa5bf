"""What a trained or an untrained run says of sentence pairs: the original's evaluation and prediction files."""

import json
import time

import numpy as np
import tensorflow as tf
from absl import logging

from bert_flow_tf import embedding, embedding_cache, experiment, input_pipeline, run_model
from bert_flow_tf.encoder import recorded_encoder, resolve_encoder
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation import metrics
from bert_flow_tf.tasks import concatenate, read_split
from bert_flow_tf.tokenizer import Tokenizer

_PAIRS_PER_BATCH = 1024


class Scorer:
    """A model, its tokenizer, and where embeddings may be kept.

    Args:
      model: `SiameseBertFlow`.
      source: `EncoderSource` of its encoder.
      settings: `Settings`.
      cache_dir: folder for embeddings, or None where the encoder's weights are not those of `source`.
    """

    def __init__(self, model, source, settings, cache_dir=None):
        self.model = model
        self.source = source
        self.settings = settings
        self.cache_dir = cache_dir
        self.tokenizer = Tokenizer.from_source(source)

    def outputs(self, examples, labels):
        """Dictionary of arrays [n, ...]: the model's outputs for every pair, and their supervised `example_loss`."""
        settings = self.settings
        pieces = input_pipeline.tokenize_pairs(self.tokenizer, examples, labels, settings.max_seq_length).pieces
        options = {"pad_to_max": settings.pad_to_max_seq_length}
        if self.cache_dir:
            u = embedding_cache.cached_embeddings(
                self.model.encoder,
                self.tokenizer,
                pieces,
                settings.max_seq_length,
                cache_dir=self.cache_dir,
                **options,
            )
        else:
            u = embedding.embed(self.model.encoder, self.tokenizer, pieces, settings.max_seq_length, **options)
        u = u.reshape(len(labels), 2, -1)
        parts = []
        for start in range(0, len(labels), _PAIRS_PER_BATCH):
            rows = slice(start, start + _PAIRS_PER_BATCH)
            outputs = self.model({"embedding": tf.constant(u[rows])}, training=False)
            outputs["example_loss"] = self.model.supervised_example_loss(outputs, tf.constant(labels[rows]))
            outputs["logits"] = self.model.classify(outputs)
            parts.append({name: value.numpy() for name, value in outputs.items() if value is not None})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def evaluate(self, task):
        """The original's metrics on dev: dictionary from name, as in `eval_results.txt`, to float32."""
        examples = read_split(task, self.settings.data_dir, "dev")
        labels = input_pipeline.scaled_labels(examples, task)
        outputs = self.outputs(examples, labels)
        loss = outputs["example_loss"]
        results = {"eval_loss": np.mean(loss)}
        if task.is_regression:
            # As the original's, the correlation with labels that are not there, all 0, is no number.
            scored = examples.has_labels
            results["eval_pearsonr"] = metrics.pearson(outputs["cos_similarity"], labels) if scored else np.nan
        else:
            results["eval_accuracy"] = np.mean(outputs["logits"].argmax(axis=-1) == labels)
        if self.settings.auc and task.is_regression:
            results["eval_auc"] = metrics.auc(outputs["cos_similarity"], labels)
        if "flow_example_loss" in outputs:
            results["eval_loss_flow"] = np.mean(outputs["flow_example_loss"])
            results["eval_loss_total"] = np.mean(loss + outputs["flow_example_loss"])
        # The estimator's own "loss": the mean of the batches' means, the last one counting as much as a full one.
        size = self.settings.eval_batch_size
        results["loss"] = np.mean([np.mean(loss[i : i + size]) for i in range(0, len(loss), size)])
        return {name: np.float32(value) for name, value in results.items()}


def load_scorer(settings, task, strategy, checkpoint_name=None):
    """`Scorer` and step of the run in `settings.output_dir`, or of the encoder that the flags name where no run is.

    Args:
      settings: `Settings`.
      task: `Task`.
      strategy: `tf.distribute.Strategy`.
      checkpoint_name: name of one of the run's checkpoints, or None for the latest.

    Raises:
      UserError: the run's structure is not what the flags say, or its encoder or checkpoint cannot be found.
    """
    output_dir = settings.output_dir
    config = experiment.read_config(output_dir)
    if config is None:
        _refuse_tf1_run(output_dir)
        source = resolve_encoder(**run_model.encoder_flags(settings))
        config = run_model.run_config(settings, task, source, None) | {"encoder_trained": False}
        checkpoint_path = None
    else:
        _check_structure(settings, task, config)
        # A run on another kind of task keeps its classifier to itself, as in the original.
        config |= {"num_labels": None if task.is_regression else config["num_labels"]}
        source = recorded_encoder(config)
        if settings.bert_hub and not settings.init_checkpoint:
            _check_encoder(settings, source)
        checkpoint_path = _checkpoint_path(settings, checkpoint_name)
    logging.info("Encoder: %s", source.bert_hub)
    with strategy.scope():
        model = run_model.build_model(source, config, seed=settings.seed, settings=settings)
        if checkpoint_path is None:
            run_model.begin_with(model, config, settings.init_checkpoint)
    step = 0
    if checkpoint_path is not None:
        run_model.restore(model, checkpoint_path, with_encoder=config["encoder_trained"])
        step = int(tf.train.load_checkpoint(str(checkpoint_path)).get_tensor("step/.ATTRIBUTES/VARIABLE_VALUE"))
        logging.info("Restored %s", checkpoint_path)
    cache_dir = settings.cached_dir if settings.caches_embeddings and not config["encoder_trained"] else None
    return Scorer(model, source, settings, cache_dir), step


def _refuse_tf1_run(output_dir):
    checkpoint = next(iter(sorted(output_dir.glob("*.index"))), None)
    if checkpoint is not None:
        raise UserError(
            f"{checkpoint.with_suffix('')}: found a checkpoint without the {experiment.CONFIG_FILE} of a run, expected "
            "a run of ours (bert-flow convert --tf1_flow makes one of a checkpoint of the original)"
        )


def _check_encoder(settings, source):
    named = resolve_encoder(**run_model.encoder_flags(settings))
    if named.fingerprint != source.fingerprint:
        raise UserError(f"--bert_hub: found {settings.bert_hub}, expected the encoder of the run, {source.bert_hub}")


def _check_structure(settings, task, config):
    if not task.is_regression and config["num_labels"] != len(task.label_names):
        raise UserError(
            f"{settings.output_dir}: found a run on {config['task_name']}, expected one with a classifier for "
            f"{task.name}'s {len(task.label_names)} labels"
        )
    wanted = {
        "sentence_embedding_type": settings.sentence_embedding_type,
        "max_seq_length": settings.max_seq_length,
        "low_dim": settings.low_dim,
        "flow": bool(settings.flow),
        "flow_model_config": run_model.flow_config(settings.flow_model_config).to_dict() if settings.flow else None,
    }
    found = {**config, "flow_model_config": config["flow_config"]}
    differing = experiment.differences({name: found[name] for name in wanted}, wanted)
    if differing:
        raise UserError(
            f"{settings.output_dir}: found a run with other settings ({'; '.join(differing)}), expected the same ones"
        )


def _checkpoint_path(settings, name):
    if name:
        path = settings.output_dir / name
        if not path.with_name(f"{path.name}.index").exists():
            raise UserError(f"--eval_checkpoint_name: found no {path}.index, expected a checkpoint's name")
        return path
    path = tf.train.latest_checkpoint(str(settings.output_dir))
    if path is None:
        raise UserError(f"{settings.output_dir}: found a run without a checkpoint, expected a trained one")
    return path


def check_results(settings, task):
    """Raises `UserError` for a task or data that evaluation or prediction could only fail on, before training."""
    if settings.do_predict and not task.is_regression:
        raise UserError(f"--do_predict: found task {task.name}, expected one scored by similarity")
    if settings.auc and task.metric != "auc":
        raise UserError(f"--auc: found task {task.name}, expected one with two labels")
    splits = ["dev"] if settings.do_eval or (settings.do_train and settings.early_stopping) else []
    evaluates_dev = bool(splits)
    splits += _prediction_splits(settings) if settings.do_predict else []
    for split in dict.fromkeys(splits):
        examples = read_split(task, settings.data_dir, split)
        if split == "dev" and evaluates_dev and examples.has_labels and task.is_regression:
            if len(examples) < 2 or np.ptp(examples.labels) == 0:
                raise UserError(
                    f"{settings.data_dir}: found {len(examples)} dev pairs with {len(set(examples.labels))} different "
                    "scores, expected at least two of each for a correlation"
                )
        elif split == "dev" and settings.do_train and settings.early_stopping and not examples.has_labels:
            raise UserError(f"--early_stopping: found task {task.name}, whose dev set has no scores, expected another")


def _prediction_splits(settings):
    if settings.do_predict_on_full:
        return "test", "dev", "train"
    return ("dev",) if settings.do_predict_on_dev else ("test",)


def write_evaluation(settings, task, scorer, step):
    """Evaluates on dev and writes `eval_results.txt`, a line `name = value` for each metric in alphabetical order."""
    results = scorer.evaluate(task) | {"global_step": step}
    lines = [f"{name} = {results[name]!s}" for name in sorted(results)]
    logging.info("***** Eval results *****")
    for line in lines:
        logging.info("  %s", line)
    experiment.write_result(
        settings.output_dir / experiment.EVALUATION_FILE, "\n".join(lines) + "\n", settings.overwrite
    )


def write_predictions(settings, task, scorer):
    """Writes the cosine of every test pair, a line each; or, with `predict_pool`, both embeddings as one JSON a line.

    Raises:
      UserError: the file is there with other contents.
    """
    started = time.monotonic()
    examples = concatenate([read_split(task, settings.data_dir, split) for split in _prediction_splits(settings)])
    outputs = scorer.outputs(examples, input_pipeline.scaled_labels(examples, task))
    if settings.predict_pool:
        lines = [
            json.dumps({"embedding_a": _rounded(a), "embedding_b": _rounded(b)})
            for a, b in zip(outputs["embedding_a"], outputs["embedding_b"], strict=True)
        ]
    else:
        lines = [str(cosine) for cosine in outputs["cos_similarity"]]
    path = settings.prediction_path
    experiment.write_result(path, "".join(f"{line}\n" for line in lines), settings.overwrite)
    logging.info("%d pairs to %s in %.1f s", len(lines), path, time.monotonic() - started)


def _rounded(vector):
    return [round(float(x), 6) for x in vector]
