"""The base of an encoder with a calibration."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from bert_flow_tf.calibration.history import History
from bert_flow_tf.calibration.judgement import Pairs, deciding_measures
from bert_flow_tf.calibration.learning import Fitted, Measuring, learn
from bert_flow_tf.calibration.methods import Method, find_method, find_methods
from bert_flow_tf.calibration.settings import DEFAULT_METHODS, FitKeywords, FitSettings
from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.common.records import ModelRecord, made_by
from bert_flow_tf.common.settings import suggesting_arguments
from bert_flow_tf.vectors.sentence_model import SentenceModel
from bert_flow_tf.vectors.texts import sentence_list

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from bert_flow_tf.calibration.comparison import Comparison
    from bert_flow_tf.common.losses import Losses
    from bert_flow_tf.tasks.scored_tasks import ScoredTask
    from bert_flow_tf.tasks.scores import Scores
    from glow.calibrator import Loss

Self = TypeVar("Self", bound="CalibratedEncoder")
# scikit-learn always gives `fit` a `y`, perhaps None.
_NO_STEP: Any = object()


class FitOptions(FitKeywords, total=False):
    """The types of the keywords of `CalibratedEncoder.fit`."""

    method: Any
    pairs: Pairs | None
    metric: str | None
    loss: "Loss | None"
    callbacks: Sequence[Any]
    show_progress_bar: bool | None


class CalibratedEncoder(SentenceModel):
    """An encoder and its calibration: learn, compare, choose a cosine.

    A subclass defines how texts are encoded, with the calibration and before it, its `maps`, and
    `state`, the arguments of its class.

    Attributes:
      history_: `calibration.history.History` of the last `fit`; after loading, its losses and
        its `verdict`.
      may_witness: True for the kinds of encoder that the study of docs/witness.md has.
    """

    history_: History | None = None
    may_witness = True

    def truncation_of(self, size: int) -> int | None:
        """Return `truncate_dim` for other maps; None if `size` channels are no more."""
        kept = self.truncate_dim
        return kept if kept is not None and kept < size else None

    def __copy__(self: Any) -> Any:
        """Return another model that shares the encoder's weights and the maps."""
        copied = _made(type(self), self.state())
        copied.__dict__.update(self.step_settings)
        return copied

    def __reduce__(self: Any) -> tuple:
        """Return the state, for `pickle` and `copy.deepcopy`."""
        return _made, (type(self), self.state()), self.step_settings

    def unfitted(self: Any) -> Any:
        copied = copy.copy(self)
        copied.maps = []
        return copied

    def evaluate(self, on: "Pairs | ScoredTask | Sequence[ScoredTask]") -> "Scores":
        """Return the scores that `bert-flow evaluate` prints; `print` shows a table.

        Args:
          on: first sentences, second sentences and their gold scores; or a task, or several, of
            `tasks.scored_tasks.read_task`.
        """
        # Importing scikit-learn and scipy takes a second.
        from bert_flow_tf.tasks.scoring import scores_of, tasks_of

        return scores_of(f"{type(self).__name__}.evaluate", self, tasks_of(on))

    @property
    def recorded_losses(self) -> "Losses | None":
        """The losses to save with the calibration; None without any."""
        return self.history_.recorded_losses if self.history_ else None

    def check_method(self, method: Method) -> None:
        """Raise `ArgumentError` for a method that does not fit the encoder."""

    def described(self) -> tuple[ModelRecord | None, str]:
        """Return the record without a calibration, if any, and its words."""
        raise NotImplementedError

    def _set_fitted(self: Self, fitted: Fitted) -> Self:
        raise NotImplementedError

    @suggesting_arguments(FitSettings)
    def fit(
        self: Self,
        sentences: Iterable[str],
        y: Any = _NO_STEP,
        *,
        method: Any = FitSettings.method,
        pairs: Pairs | None = None,
        metric: str | None = None,
        loss: "Loss | None" = None,
        callbacks: Sequence[Any] = (),
        show_progress_bar: bool | None = None,
        **settings: "Unpack[FitKeywords]",
    ) -> Self:
        """Learn a new calibration on sentences without labels; return the model.

        `glow.FlowCalibrator` learns on their embeddings, computed once without dropout, as
        `run_siamese --flow=1 --flow_loss=1 --num_examples=0 --cache_embeddings` does. The model
        does not change if an error is raised.

        Args:
          sentences: a repeated sentence counts each time.
          y: ignored; scikit-learn's pipelines pass it, whose `fit` leaves a model as it is unless
            `frozen` is False.
          method: "flow"; "auto[-D]", see `calibration.auto`; "whitening[-D]",
            "soft-whitening-E[-D]", "sn" or "natsv-K", see `calibration.affine`; an object with
            scikit-learn's `fit` and `transform`, such as `PCA(128, whiten=True)` or a
            `glow.FlowCalibrator`; `module:name` of a class or function that makes such an object;
            or several of these, as a list or joined by "+", such as "whitening+flow" and
            "sn+natsv-K": each is learned on what the one before returns, and a flow comes last. D
            is the number of channels of the calibrated embeddings.
          pairs: first sentences, second sentences and their gold scores, for `history_.judgement`.
          metric: the measure on pairs that decides: "spearman", "auc" or "f1"; by default, the
            first for graded scores, and the others for labels 0 and 1.
          loss: of each row in a flow's training, see `glow.FlowCalibrator`.
          callbacks: Keras callbacks of a flow's training, likewise.
          show_progress_bar: None shows it on a terminal only.
          **settings: the fields of `calibration.settings.FitSettings`: `flow_model_config`, the
            name of a shipped configuration or a JSON file; `epochs`, None for 1, or enough for 300
            steps, and the flow of the least held-out loss is kept; `batch_size`, the
            sentences per step; `learning_rate`, which is constant; `seed`, of order and initial
            weights; `dev_fraction`, the share of distinct sentences held out, see
            `calibration.learning.hold_out`.

        Raises:
          UserError: there are fewer sentences than `batch_size`, an argument is invalid, or a loss
            is not finite.
        """
        if self.frozen and y is not _NO_STEP:
            return self
        found = find_method(method)
        self.check_method(found)
        fitted = learn(
            sentence_list(sentences),
            found,
            FitSettings(**settings),  # type: ignore[arg-type]  # a path becomes a string
            self._measuring(pairs, metric),
            loss=loss,
            callbacks=callbacks,
            show_progress_bar=show_progress_bar,
        )
        return self._set_fitted(fitted)

    def compare(
        self,
        sentences: Iterable[str],
        methods: Sequence[Any] | Mapping[str, Any] = DEFAULT_METHODS,
        *,
        pairs: Pairs | None = None,
        metric: str | None = None,
        settings: FitSettings | None = None,
        show_progress_bar: bool | None = None,
    ) -> "Comparison":
        """Learn several calibrations of the encoder, and change none; recommend one.

        The first of the result's `rows` is the encoder as it is, `recommended` is the method to
        take, and `str` gives a table. The model's own calibration is ignored.

        Args:
          methods: names or objects, as `fit`'s `method`; or a dict of them by their names in
            the table.
          pairs: first sentences, second sentences and their gold scores, which may be 0 and 1.
          metric: see `fit`.
          settings: the flow's.

        The errors are those of `fit`.
        """
        from bert_flow_tf.calibration.comparison import Comparison, learn_all, recommend

        found = find_methods(methods)
        for method in found:
            self.check_method(method)
        settings = settings or FitSettings()
        if settings.method != FitSettings.method:
            raise ArgumentError(
                f"settings: found the method {settings.method}, expected the names in methods"
            )
        measuring = self._measuring(pairs, metric)
        texts = sentence_list(sentences)
        rows = learn_all(texts, found, settings, measuring, show_progress_bar=show_progress_bar)
        scores = measuring.pairs[2] if measuring.pairs else ()
        count = len(scores)
        deciding = deciding_measures(scores, metric)[0]
        recommended, reason = recommend(rows, count, deciding)
        record, words = self.described()
        return Comparison(
            made_by=made_by("compare"),
            model=record,
            encoder=words,
            sentences=len(texts),
            pairs=count,
            metric=deciding,
            flow_model_config=settings.flow_model_config,
            rows=rows,
            recommended=recommended,
            reason=reason,
        )

    def _measuring(self, pairs: Pairs | None, metric: str | None) -> Measuring:
        """Return what measures a calibration; check pairs and metric."""
        if pairs is not None:
            from bert_flow_tf.tasks.labelled_pairs import checked_pairs

            pairs = checked_pairs(pairs)
            deciding_measures(pairs[2], metric)
        elif metric is not None:
            raise ArgumentError(f"metric: found {metric} without pairs, expected labelled pairs")
        return Measuring(
            encode=self.encode_pooled,
            pairs=pairs,
            metric=metric,
            reduce=self.reduce,
            may_witness=self.may_witness,
        )


def _made(kind: Any, state: dict[str, Any]) -> Any:
    return kind(**state)
