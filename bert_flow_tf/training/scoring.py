"""The original's evaluation and prediction files."""

import dataclasses
import functools
import json
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import logging

from bert_flow_tf.data.tasks import Examples, Task, concatenate, get_task, read_split
from bert_flow_tf.encoder import stream
from bert_flow_tf.encoder.cache import cached_embeddings
from bert_flow_tf.encoder.convert.from_checkpoint import run_step
from bert_flow_tf.encoder.source import recorded_encoder, resolve_encoder
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.evaluation import protocols
from bert_flow_tf.files.checkpoints import named_checkpoint
from bert_flow_tf.model import build
from bert_flow_tf.model.siamese import SiameseBertFlow
from bert_flow_tf.results.records import Predictions
from bert_flow_tf.runs.folder import DEV_RESULTS_FILE, differences, write_result
from bert_flow_tf.runs.record import CONFIG_FILE, Model, RunConfig, made_by, model_at, read_config
from bert_flow_tf.runs.settings import Cluster, Settings, flow_config
from bert_flow_tf.training import pairs
from bert_flow_tf.training.devices import configure_devices, from_chief
from bert_flow_tf.training.run import LostWorker
from bert_flow_tf.training.train import train

_PAIRS_PER_BATCH = 1024


@dataclasses.dataclass
class Scorer:
    """Compute a model's outputs for pairs; cache a frozen encoder's embeddings."""

    model: SiameseBertFlow
    settings: Settings
    cache_dir: str | os.PathLike | None = None
    record: Model | None = None

    def __post_init__(self) -> None:
        self.tokenizer = Tokenizer.from_source(self.model.encoder.source)

    def outputs(self, examples: Examples, labels: np.ndarray) -> dict[str, np.ndarray]:
        """Return the model's outputs [n, ...] and the supervised `example_loss`."""
        max_seq_length, pad_to_max = self.settings.max_seq_length, self.settings.pad_to_max_seq_length
        pieces = pairs.tokenize_pairs(self.tokenizer, examples, labels, max_seq_length).pieces
        embed = functools.partial(cached_embeddings, cache_dir=self.cache_dir) if self.cache_dir else stream.embed
        u = embed(self.model.encoder, self.tokenizer, pieces, max_seq_length, pad_to_max=pad_to_max)
        u = u.reshape(len(labels), 2, -1)
        parts = []
        for start in range(0, len(labels), _PAIRS_PER_BATCH):
            rows = slice(start, start + _PAIRS_PER_BATCH)
            outputs = self.model({"embedding": tf.constant(u[rows])}, training=False)
            outputs["example_loss"] = self.model.supervised_example_loss(outputs, tf.constant(labels[rows]))
            outputs["logits"] = self.model.classify(outputs)
            parts.append({name: value.numpy() for name, value in outputs.items() if value is not None})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def run_task(settings: Settings, cluster: Cluster, score: Callable[[Scorer], None] | None) -> None:
    """Train, evaluate and predict, see `training.run.train_and_score`."""
    task, step = get_task(settings.task_name), 0
    check_scoring(settings, task)
    batch_size = settings.train_batch_size if settings.do_train else None
    strategy = configure_devices(
        settings.seed, batch_size, cluster, num_logical_cpus=settings.num_logical_cpus, use_xla=settings.use_xla
    )
    if settings.trains:
        source = resolve_encoder(**settings.encoder_arguments())
        cache_dir = (settings.cached_dir or settings.output_dir) if settings.encoder_is_frozen else None

        def dev_score(model: SiameseBertFlow) -> float:
            results = evaluate(Scorer(model, settings, cache_dir), task, settings)
            return float(results["eval_pearsonr" if task.is_regression else "eval_accuracy"])

        try:
            model, record, step = train(settings, task, source, strategy, cluster, dev_score)
        except tf.errors.OpError as error:
            if cluster.count == 1:
                raise
            raise LostWorker(f"worker {cluster.index}: another worker has ended; restart all to resume") from error
        scorer = Scorer(model, settings, cache_dir, record)
    elif settings.scores:
        scorer, step = load_scorer(settings, task, strategy)
    if cluster.is_chief:
        if settings.do_eval:
            write_evaluation(settings, task, scorer, step)
        if settings.do_predict:
            predictor, name = scorer, settings.eval_checkpoint_name
            if name:
                # Only the chief predicts, so it must not use the workers' common strategy.
                local = strategy if cluster.count == 1 else tf.distribute.get_strategy()
                predictor, _ = load_scorer(settings, task, local, name)
            write_predictions(settings, task, predictor)
        if score is not None:
            score(scorer)
    # Wait for all workers, because the others would report a worker that ended earlier as lost.
    from_chief(strategy, cluster)
    if not settings.scores_checkpoint_alone:
        logging.info("*** output_dir ***\n%s", settings.output_dir)


def evaluate(scorer: Scorer, task: Task, settings: Settings) -> dict[str, np.float32]:
    examples = read_split(task, settings.data_dir, "dev")
    labels = pairs.scaled_labels(examples, task)
    outputs = scorer.outputs(examples, labels)
    loss = outputs["example_loss"]
    results = {"eval_loss": np.mean(loss)}
    if task.is_regression:
        # Without labels, the original computes NaN, because it sets all labels to 0.
        cosines = outputs["cos_similarity"]
        results["eval_pearsonr"] = protocols.pearson(cosines, labels) if examples.has_labels else np.nan
    else:
        results["eval_accuracy"] = np.mean(outputs["logits"].argmax(axis=-1) == labels)
    if settings.auc and task.is_regression:
        results["eval_auc"] = protocols.auc(outputs["cos_similarity"], labels)
    if "flow_example_loss" in outputs:
        results["eval_loss_flow"] = np.mean(outputs["flow_example_loss"])
        results["eval_loss_total"] = np.mean(loss + outputs["flow_example_loss"])
    # The original's estimator reports "loss", the mean of batch means, in which a smaller last batch counts fully.
    size = settings.eval_batch_size
    results["loss"] = np.mean([np.mean(loss[i : i + size]) for i in range(0, len(loss), size)])
    return {name: np.float32(value) for name, value in results.items()}


def load_scorer(
    settings: Settings, task: Task, strategy: tf.distribute.Strategy, checkpoint_name: str | None = None
) -> tuple[Scorer, int]:
    """Return the `Scorer` and step of a run or an untrained encoder.

    The checkpoint is `checkpoint_name`, or the latest.

    Raises:
      UserError: the flags describe another model, or the run's encoder or checkpoint is missing.
    """
    checkpoint, step = None, 0
    output_dir = None if settings.scores_checkpoint_alone else settings.output_dir
    config = read_config(output_dir) if output_dir else None
    if output_dir is None or config is None:
        if output_dir and (checkpoints := sorted(output_dir.glob("*.index"))):
            found = f"{checkpoints[0].with_suffix('')}: found a checkpoint without the {CONFIG_FILE} of a run"
            raise UserError(f"{found}; bert-flow convert --tf1_flow makes a run from a TF1 checkpoint")
        source = resolve_encoder(**settings.encoder_arguments())
        config = build.run_config(settings, task, source)
        record = config.model
    else:
        _check_model(settings, task, config)
        if settings.bert_hub and not settings.init_checkpoint:
            source = resolve_encoder(**settings.encoder_arguments(), recorded=config.encoder)
        else:
            source = recorded_encoder(config)
        checkpoint = str(output_dir / checkpoint_name) if checkpoint_name else named_checkpoint(output_dir)
        if checkpoint is None:
            raise UserError(f"{output_dir}: found a run without a checkpoint, expected a trained one")
        record = model_at(config, checkpoint)
    logging.info("Encoder: %s", source.bert_hub)
    with strategy.scope():
        # Load a classifier only from a run of the same task type, as the original does.
        num_labels = None if task.is_regression else config.num_labels
        model = build.build_model(source, config.model, num_labels=num_labels, losses=settings, seed=settings.seed)
        if checkpoint is not None:
            build.restore(build.checkpoint_parts(model, config.encoder_trained), checkpoint)
            step = run_step(checkpoint)
            logging.info("Restored %s", checkpoint)
        elif "flow" not in build.load_init_checkpoint(model, settings.init_checkpoint) and model.flow is not None:
            logging.warning("%s has no checkpoint: its flow is untrained", output_dir or "the command")
    cache_dir = None if config.encoder_trained else settings.cached_dir
    return Scorer(model, settings, cache_dir, record), step


def _check_model(settings: Settings, task: Task, config: RunConfig) -> None:
    model = config.model
    found = {"sentence_embedding_type": model.pooling, "max_seq_length": model.max_seq_length, "low_dim": model.low_dim}
    given = {name: getattr(settings, name) for name in found}
    # No number below 1 reduces the dimension.
    found["low_dim"], given["low_dim"] = max(model.low_dim, 0), max(settings.low_dim, 0)
    found["flow_model_config"] = model.flow.config if model.flow else None
    given["flow_model_config"] = flow_config(settings.flow_model_config) if settings.flow else None
    if not task.is_regression:
        found["num_labels"], given["num_labels"] = config.num_labels, len(task.label_names)
    if differing := "; ".join(differences(found, given)):
        raise UserError(f"{settings.output_dir}: found a run with other settings ({differing}), expected the same")


def check_scoring(settings: Settings, task: Task) -> None:
    """Raise `UserError` before training if evaluation or prediction cannot succeed."""
    data_dir = settings.data_dir
    stops_early = settings.do_train and settings.early_stopping
    if settings.do_predict and not task.is_regression:
        raise ArgumentError(f"do_predict: found task {task.name}, expected one scored by similarity")
    if settings.auc and task.metric != "auc":
        raise ArgumentError(f"auc: found task {task.name}, expected one with two labels")
    if (settings.do_eval or stops_early) and not read_split(task, data_dir, "dev").has_labels and stops_early:
        raise ArgumentError(f"early_stopping: found task {task.name}, expected one whose dev set has scores")
    for split in settings.prediction_splits if settings.do_predict else ():
        read_split(task, data_dir, split)


def write_evaluation(settings: Settings, task: Task, scorer: Scorer, step: int) -> None:
    """Evaluate on dev and write `eval_results.txt`, one `name = value` per line."""
    results = evaluate(scorer, task, settings) | {"global_step": step}
    text = "".join(f"{name} = {results[name]!s}\n" for name in sorted(results))
    logging.info("***** Eval results *****\n%s", text)
    write_result(settings.output_dir / DEV_RESULTS_FILE, text, settings.overwrite)


def write_predictions(settings: Settings, task: Task, scorer: Scorer) -> None:
    """Write a cosine per pair or, with `predict_pool`, both embeddings as JSON."""
    splits, path = settings.prediction_splits, settings.prediction_path
    examples = concatenate([read_split(task, settings.data_dir, split) for split in splits])
    outputs = scorer.outputs(examples, pairs.scaled_labels(examples, task))
    if settings.predict_pool:
        names, rows = ("embedding_a", "embedding_b"), range(len(examples))
        both = ({name: [round(float(x), 6) for x in outputs[name][i]] for name in names} for i in rows)
        lines = [json.dumps(pair) for pair in both]
    else:
        lines = [str(cosine) for cosine in outputs["cos_similarity"]]
    assert scorer.record is not None, "only a scorer of dev during training has no record"
    record = Predictions(
        made_by=made_by("run_siamese"), model=scorer.record, task=task.name, splits=list(splits), pairs=len(examples)
    )
    write_result(path, "".join(f"{line}\n" for line in lines), settings.overwrite, record)
    logging.info("%d pairs to %s", len(lines), path)
