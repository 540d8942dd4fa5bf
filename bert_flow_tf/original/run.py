"""A run of `run_siamese`: its folder, settings, model and results."""

import functools
import logging
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

from bert_flow_tf.common.checkpoints import checkpoint_prefix, named_checkpoint
from bert_flow_tf.common.errors import ArgumentError, UserError, warn_user
from bert_flow_tf.common.json_files import CONFIG_FILE
from bert_flow_tf.common.reading import AnyPath, file_digest
from bert_flow_tf.common.records import (
    CalibrationRecord,
    ModelRecord,
    Setting,
    Training,
    made_by,
)
from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.model.build import own_code
from bert_flow_tf.original import build, pairs, provenance
from bert_flow_tf.original.continuation import can_continue, continue_run
from bert_flow_tf.original.encoder import recorded_encoder, resolve_run_encoder
from bert_flow_tf.original.folder import DEV_RESULTS_FILE, RESULT, ResultFile, write_result
from bert_flow_tf.original.scoring import PairScorer, evaluate, prediction_lines
from bert_flow_tf.original.settings import RunSettings
from bert_flow_tf.original.siamese import SiameseBertFlow
from bert_flow_tf.original.train import compiled_model, new_batches, train_steps
from bert_flow_tf.report.reports import scores_table
from bert_flow_tf.tasks.protocols import TaskScores, score_task, unscored
from bert_flow_tf.tasks.scored_tasks import ScoredTask, splits_as_task
from bert_flow_tf.tasks.scores import Basis, ScoredRun, Scores, write_scores
from bert_flow_tf.tasks.scoring import scores_of
from bert_flow_tf.tasks.tasks import get_task, read_split
from bert_flow_tf.training.cluster import Cluster
from bert_flow_tf.training.devices import Workers, configure_devices
from bert_flow_tf.training.resumable import ResumableRun, Stages
from bert_flow_tf.training.run_folder import (
    EVALUATION_FILE,
    KEEP_CHECKPOINT_MAX,
    TRAIN_RESULTS_FILE,
    FinishedRun,
    check_finished,
    differences,
    run_step,
)
from bert_flow_tf.training.run_records import RunConfig, model_at, read_config

logger = logging.getLogger(__name__)


class Run:
    """Train, load, evaluate and predict in one run's folder.

    Args:
      folder: the run's folder; None to score a checkpoint without a run.
      cluster: the workers that train the run; only the chief writes.
      senteval: the tasks of `--do_senteval`.
    """

    def __init__(
        self,
        folder: pathlib.Path | None,
        settings: RunSettings,
        cluster: Cluster | None = None,
        senteval: Sequence[ScoredTask] = (),
    ) -> None:
        self._folder = folder
        self.settings = settings
        self._senteval = senteval
        self.task = get_task(settings.data.task_name)
        training = settings.training
        cluster = cluster or Cluster()
        size = training.train_batch_size if training.do_train else None
        strategy = configure_devices(
            training.seed,
            size,
            cluster,
            num_logical_cpus=training.num_logical_cpus,
            use_xla=training.use_xla,
        )
        self.workers = Workers(cluster, strategy)

    @property
    def folder(self) -> pathlib.Path:
        assert self._folder is not None, "only SentEval scores a checkpoint without a run"
        return self._folder

    def train(self) -> PairScorer:
        """Train or resume the run.

        Raises:
          UserError: see `check_run` and `results`; a loss or gradient is not finite.
          FinishedRun: the run and all results are finished.
          LostWorker: another worker has ended.
          KeyboardInterrupt: SIGINT or SIGTERM came; the state has been saved.
        """
        with self.workers.noticing_lost_worker():
            return self._train_or_resume(Stages())

    def _train_or_resume(self, stages: Stages) -> PairScorer:
        training = self.settings.training
        source = resolve_run_encoder(**self.settings.model.encoder_arguments)
        found, count = pairs.read_training_data(
            self.settings.data,
            source.tokenizer(),
            self.settings.model.max_seq_length,
            self.settings.losses.num_examples,
            training.seed,
        )
        config = self.config(source, count, pairs.fingerprint(found))
        run = ResumableRun(
            self.folder, config, self.workers, stages, overwrite=self.settings.overwrite
        )
        model = self._opened_model(run, source, count)
        cache_dir = self.settings.model.cached_dir or self.folder
        scorer = self._scorer(model, config, None, cache_dir)
        if not run.is_finished():
            order = functools.partial(
                pairs.ordered, len(found.labels), training.train_batch_size, training.seed
            )
            batches = new_batches(model, found, order, self.settings.model, training, cache_dir)
            if training.cache_embeddings:
                stages.end("embed")
            train_steps(run, model, batches, training, count, lambda: self.dev_score(scorer))
            run.finish()
        # Only the chief knows the checkpoint; it alone evaluates and predicts.
        return self._scorer(model, config, run.last_checkpoint, cache_dir)._replace(step=run.step)

    def _opened_model(
        self, run: ResumableRun, source: EncoderSource, num_examples: int
    ) -> SiameseBertFlow:
        """Check and open the run; return its model at the last checkpoint."""
        settings = self.settings
        total_steps = settings.training.total_steps(num_examples)
        # All workers must call the same collectives, so the chief decides for all.
        can = self.workers.is_chief and can_continue(self.folder, run.config, settings)
        continues = bool(self.workers.from_chief(int(can)))
        if not continues:
            run.check(self._missing_results(run.config))
        with self.workers.strategy.scope():
            model = compiled_model(
                source,
                run.config,
                settings.model.init_checkpoint,
                settings.losses,
                settings.training,
                total_steps,
            )
        if continues:
            if self.workers.is_chief:
                continue_run(self.folder, run.config, settings, num_examples)
            run.check(self._missing_results(run.config))
        run.open(
            kept=KEEP_CHECKPOINT_MAX,
            replaced=RESULT,
            optimizer=model.optimizer,
            flow_optimizer=model.flow_optimizer,
            **build.checkpoint_parts(model, run.config.encoder_trained),
        )
        if settings.losses.encoder_is_frozen:
            # Checkpoints also hold the first rate of the optimiser that takes no step, and a run
            # with more epochs has another one.
            model.optimizer._compute_current_learning_rate()
        return model

    def _missing_results(self, config: RunConfig) -> list[pathlib.Path]:
        """Return the wanted results that the chief's finished run lacks."""
        if not self.workers.is_chief or self.settings.overwrite:
            return []
        paths = [self.folder / name for name in self.settings.scoring.files]
        if not (self.folder / TRAIN_RESULTS_FILE).exists():
            return paths
        checkpoint = named_checkpoint(self.folder)
        if checkpoint is None:
            return paths
        results = self._results(config, checkpoint)
        return [one.path for one in results if one.remaining(overwrite=False)]

    def load(self) -> PairScorer:
        """Load the model to score.

        It is a run's last or named checkpoint, or an untrained encoder.

        Raises:
          UserError: the settings describe another model, the run's encoder or checkpoint is
            missing, the run has not finished, or a result depends on something else.
          FinishedRun: all results are finished.
        """
        scoring = self.settings.scoring
        scores_latest = scoring.do_eval or scoring.do_senteval
        return self._load(None if scores_latest else scoring.eval_checkpoint_name, is_first=True)

    def _load(self, checkpoint_name: str | None, *, is_first: bool = False) -> PairScorer:
        """Load a checkpoint by name, by default the latest.

        With `is_first`, look before the long work if results remain to be made.
        """
        config = read_config(self._folder) if self._folder else None
        checkpoint = None
        if self._folder is None or config is None:
            if checkpoint_name:
                raise ArgumentError(
                    f"eval_checkpoint_name: found {checkpoint_name} without a run in "
                    f"{self._folder}, expected a trained one"
                )
            source = self._untrained_encoder()
            config = self.config(source)
        else:
            self._check_same_model(config)
            source = self._recorded_encoder(config)
            checkpoint = self._find_checkpoint(self._folder, checkpoint_name)
        if is_first and self._folder is not None:
            results = self._results(config, checkpoint)
            if not [one for one in results if one.remaining(overwrite=self.settings.overwrite)]:
                raise FinishedRun(f"{self._folder}: found all results of these settings and data")
        logger.info("Encoder: %s", source.bert_hub)
        # Only the chief predicts, so it must not use the workers' common strategy.
        strategy = (
            self.workers.strategy
            if self.workers.cluster.count == 1
            else tf.distribute.get_strategy()
        )
        with strategy.scope():
            model = self._restored_model(source, config, checkpoint)
        scorer = self._scorer(model, config, checkpoint, self.settings.model.cached_dir)
        return scorer._replace(step=run_step(checkpoint)) if checkpoint else scorer

    def _find_checkpoint(self, folder: pathlib.Path, name: str | None) -> str:
        """Return a named checkpoint, else the last one of a finished run."""
        if name:
            return str(checkpoint_prefix(folder / name))
        check_finished(folder)
        checkpoint = named_checkpoint(folder)
        if checkpoint is None:
            raise UserError(f"{folder}: found a run without a checkpoint, expected a trained one")
        return checkpoint

    def _results(self, config: RunConfig, checkpoint: str | None) -> list[ResultFile]:
        """Return the wanted result files of a model.

        The model is a run's checkpoint or an untrained encoder.
        """
        scoring = self.settings.scoring
        found = []
        for name in scoring.files:
            prefix = checkpoint
            if name == scoring.prediction_file and scoring.eval_checkpoint_name:
                prefix = str(self.folder / scoring.eval_checkpoint_name)
            record = model_at(config, prefix) if prefix else config.model
            found.append(self._result(name, record, self._flags_beside(config)))
        return found

    def _result(
        self, name: str, record: ModelRecord, settings: Mapping[str, Setting]
    ) -> ResultFile:
        """Return a result file of a model, and what it depends on."""
        model = self.settings.model
        scoring = self.settings.scoring
        data = {task.name: task.digest for task in self._tasks_of(name)}
        settings = dict(settings)
        if name != EVALUATION_FILE:
            settings["pad_to_max_seq_length"] = model.pad_to_max_seq_length
            settings["use_xla"] = self.settings.training.use_xla
        if name == DEV_RESULTS_FILE:
            losses = self.settings.losses
            settings["auc"] = scoring.auc
            settings["eval_batch_size"] = scoring.eval_batch_size
            settings["num_examples"] = losses.num_examples
            settings["l2_penalty"] = losses.l2_penalty
            if record.checkpoint is None and self._num_labels:
                # The classifier that no checkpoint holds is drawn.
                settings["seed"] = self.settings.training.seed
        return ResultFile(self.folder / name, Basis(data, settings, record))

    def _tasks_of(self, name: str) -> Sequence[ScoredTask]:
        """Return the tasks of a result file."""
        if name == EVALUATION_FILE:
            return self._senteval
        splits = ("dev",) if name == DEV_RESULTS_FILE else self.settings.scoring.prediction_splits
        return [splits_as_task(self.task, self.settings.data.data_dir, splits)]

    def _flags_beside(self, config: RunConfig) -> dict[str, Setting]:
        """Return the settings that a model depends on beside its record.

        A run's folder has its own, so they are left out.
        """
        is_run = config.data is not None
        return {} if is_run or not config.begins_with else {"init_checkpoint": config.begins_with}

    def score(self, scorer: PairScorer) -> None:
        """Make the wanted results that do not exist."""
        scoring = self.settings.scoring
        if scoring.do_eval:
            self.evaluate(scorer)
        if scoring.do_predict:
            self.predict(scorer)
        if scoring.do_senteval:
            self.score_senteval(scorer)

    def evaluate(self, scorer: PairScorer) -> None:
        """Evaluate on dev and write `eval_results.txt`, one `name = value` per line."""
        result = self._result(DEV_RESULTS_FILE, scorer.record, scorer.settings)
        if not result.remaining(overwrite=self.settings.overwrite):
            return
        results = self.evaluated(scorer) | {"global_step": scorer.step}
        text = "".join(f"{name} = {results[name]!s}\n" for name in sorted(results))
        logger.info("***** Eval results *****\n%s", text)
        self._write(result, text, [unscored(one) for one in self._tasks_of(DEV_RESULTS_FILE)])

    def predict(self, scorer: PairScorer) -> None:
        """Write a cosine per pair or, with `predict_pool`, both embeddings as JSON."""
        scoring = self.settings.scoring
        named = scoring.eval_checkpoint_name
        if named and pathlib.Path(scorer.record.checkpoint or "").name != named:
            scorer = self._load(named)
        result = self._result(scoring.prediction_file, scorer.record, scorer.settings)
        if not result.remaining(overwrite=self.settings.overwrite):
            return
        (task,) = self._tasks_of(scoring.prediction_file)
        (examples,) = task.subsets.values()
        outputs = scorer.outputs(examples, self.task)
        lines = prediction_lines(outputs, scoring.predict_pool)
        scores = unscored(task)
        if task.has_gold:
            try:
                scores = score_task(task, [outputs["cos_similarity"]])
            except UserError as error:
                # As in the original, cosines without a correlation are predictions, too.
                warn_user(f"predictions without a score: {error}")
        self._write(result, "".join(f"{line}\n" for line in lines), [scores])
        logger.info("%d pairs to %s", len(lines), result.path)

    def _write(self, result: ResultFile, text: str, tasks: Sequence[TaskScores]) -> None:
        """Write a result file and its record."""
        model = result.basis.model
        assert model is not None, "_result names it"
        run = ScoredRun(
            name=model.checkpoint or self._name,
            model=model,
            settings=dict(result.basis.settings),
            tasks=dict(zip(result.basis.data, tasks, strict=True)),
        )
        write_result(result.path, text, Scores(made_by=made_by("run_siamese"), runs=[run]))

    def score_senteval(self, scorer: PairScorer) -> None:
        """Print the scores of SentEval's tasks; write them as `bert-flow evaluate` does."""
        from bert_flow_tf.api import BertFlow
        from bert_flow_tf.encoder.text_encoder import TextEncoder

        overwrite = self.settings.overwrite
        tasks = self._senteval
        result = None
        if self._folder is not None:
            result = self._result(EVALUATION_FILE, scorer.record, scorer.settings)
            remaining = result.remaining(overwrite=overwrite)
            tasks = [task for task in tasks if task.name in remaining]
        if not tasks:
            return
        record = scorer.record
        network = scorer.model.encoder
        model = BertFlow(
            TextEncoder(
                network.source,
                network,
                max_seq_length=record.max_seq_length,
                trained=scorer.encoder_trained,
            ),
            [] if scorer.model.flow is None else [scorer.model.flow],
            origin=record.encoder,
            learned=record.flow,
            checkpoint=record.checkpoint,
            low_dim=record.low_dim,
        )
        settings = scorer.settings
        scores = scores_of("run_siamese", model, tasks, name=self._name, settings=settings)
        if result is not None:
            scores = write_scores(result.path, scores, overwrite=overwrite)
        print(scores_table(scores, explain_paper=True).to_text())

    @property
    def _name(self) -> str:
        """The name of a model without a run, for tables."""
        model = self.settings.model
        return str(self._folder or model.init_checkpoint or model.bert_hub)

    def dev_score(self, scorer: PairScorer) -> float:
        """Return the score on dev by which `--early_stopping` decides."""
        return float(
            self.evaluated(scorer)["eval_pearsonr" if self.task.is_regression else "eval_accuracy"]
        )

    def config(
        self, source: EncoderSource, pairs: int | None = None, data: str | None = None
    ) -> RunConfig:
        """Return the run's `config.json`.

        Args:
          pairs: number of training pairs; None if nothing is trained.
          data: digest of the pairs.
        """
        settings = self.settings.model
        checkpoint = settings.init_checkpoint
        return RunConfig(
            made_by=made_by("run_siamese"),
            model=self._model_record(source, pairs),
            encoder=source.files,
            encoder_flags=provenance.absolute_flags(settings.encoder_arguments),
            encoder_trained=self._trains_encoder(pairs),
            num_labels=self._num_labels,
            data=data,
            # A checkpoint's index holds the checksum of every tensor.
            begins_with=file_digest(f"{checkpoint_prefix(checkpoint)}.index")
            if checkpoint
            else None,
            flags=self.settings.training_flags,
        )

    def _trains_encoder(self, pairs: int | None) -> bool:
        return pairs is not None and not self.settings.losses.encoder_is_frozen

    def _model_record(self, source: EncoderSource, pairs: int | None) -> ModelRecord:
        settings = self.settings.model
        encoder = provenance.run_encoder_record(source, settings.encoder_arguments)
        if self._trains_encoder(pairs):
            encoder = msgspec.structs.replace(
                encoder,
                fingerprint=None,
                weights=None,
                fine_tuning=self._training_record(pairs, encoder.fine_tuning),
            )
        flow = None
        if settings.flow:
            training = provenance.flow_training(settings.init_checkpoint)
            if pairs is not None:
                training = self._training_record(pairs, training)
            flow = CalibrationRecord(
                config=settings.flow_config,
                training=training or Training(seed=self.settings.training.seed),
            )
        return ModelRecord(
            encoder=encoder,
            pooling=settings.sentence_embedding_type,
            max_seq_length=settings.max_seq_length,
            low_dim=settings.low_dim,
            flow=flow,
            code=own_code(settings.sentence_embedding_type, settings.flow_config),
        )

    def _training_record(self, pairs: int | None, earlier: Training | None) -> Training:
        flags = self.settings.training_flags
        return Training(
            task=self.task.name,
            pairs=pairs,
            settings={
                name: value for name, value in flags.items() if name not in ("task_name", "seed")
            },
            seed=self.settings.training.seed,
            began_with=earlier,
        )

    @property
    def _num_labels(self) -> int | None:
        return None if self.task.is_regression else len(self.task.label_names)

    def _scorer(
        self,
        model: SiameseBertFlow,
        config: RunConfig,
        checkpoint: str | None,
        cache_dir: AnyPath | None,
    ) -> PairScorer:
        settings = self.settings.model
        return PairScorer(
            model,
            record=model_at(config, checkpoint) if checkpoint else config.model,
            step=0,
            max_seq_length=settings.max_seq_length,
            pad_to_max=settings.pad_to_max_seq_length,
            encoder_trained=config.encoder_trained,
            # The embeddings of an encoder that trains change.
            cache_dir=None if config.encoder_trained else cache_dir,
            settings=self._flags_beside(config),
        )

    def evaluated(self, scorer: PairScorer) -> dict[str, np.float32]:
        dev = read_split(self.task, self.settings.data.data_dir, "dev")
        return evaluate(scorer, self.task, dev, self.settings.scoring)

    def _untrained_encoder(self) -> EncoderSource:
        if self._folder and (checkpoints := sorted(self._folder.glob("*.index"))):
            found = (
                f"{checkpoints[0].with_suffix('')}: found a checkpoint without the "
                f"{CONFIG_FILE} of a run"
            )
            raise UserError(
                f"{found}; bert-flow convert --tf1_flow makes a run from a TF1 checkpoint"
            )
        return resolve_run_encoder(**self.settings.model.encoder_arguments)

    def _recorded_encoder(self, config: RunConfig) -> EncoderSource:
        model = self.settings.model
        if model.bert_hub and not model.init_checkpoint:
            return resolve_run_encoder(**model.encoder_arguments, recorded=config.encoder)
        return recorded_encoder(config)

    def _restored_model(
        self, source: EncoderSource, config: RunConfig, checkpoint: str | None
    ) -> SiameseBertFlow:
        # Load a classifier only from a run of the same task type, as the original does.
        num_labels = None if self.task.is_regression else config.num_labels
        losses = self.settings.losses
        seed = self.settings.training.seed
        model = build.build_model(
            source, config.model, num_labels=num_labels, losses=losses, seed=seed
        )
        if checkpoint is not None:
            build.restore(build.checkpoint_parts(model, config.encoder_trained), checkpoint)
            logger.info("Restored %s", checkpoint)
            return model
        loaded = build.load_init_checkpoint(model, self.settings.model.init_checkpoint)
        if model.flow is not None and "flow" not in loaded and not self.settings.training.do_train:
            path = self.settings.model.init_checkpoint
            raise ArgumentError(f"init_checkpoint: found no flow in {path}, expected one")
        return model

    def _check_same_model(self, config: RunConfig) -> None:
        """Raise `UserError` if the run has another model than the settings describe."""
        model = config.model
        settings = self.settings.model
        # No number below 1 reduces the dimension.
        found: dict[str, Any] = {"low_dim": max(model.low_dim, 0)}
        found |= {"flow_model_config": model.flow.config if model.flow else None}
        found |= {"sentence_embedding_type": model.pooling, "max_seq_length": model.max_seq_length}
        given = {name: getattr(settings, name) for name in found}
        given |= {"low_dim": max(settings.low_dim, 0), "flow_model_config": settings.flow_config}
        found["code"] = model.code
        given["code"] = own_code(settings.sentence_embedding_type, settings.flow_config)
        if not self.task.is_regression:
            found["num_labels"] = config.num_labels
            given["num_labels"] = self._num_labels
        if differing := "; ".join(differences(found, given)):
            raise UserError(
                f"{self._folder}: found a run with other settings ({differing}), expected the same"
            )
