"""The Python interface: encode, fit, compare, save and export.

A method imports what it alone needs, so that a program which encodes starts without the rest.
"""

import copy
import logging
import os
import pathlib
import sys
import typing
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from bert_flow_tf.calibration.judgement import Pairs
from bert_flow_tf.calibration.learning import Fitted, learn
from bert_flow_tf.calibration.methods import Method, find_method
from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.reading import is_export, reading
from bert_flow_tf.common.settings import DTYPES, chosen, suggesting_arguments
from bert_flow_tf.encoder.pooling import pooling_name
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.encoder.text_encoder import TextEncoder
from bert_flow_tf.export.formats import ExportSettings
from bert_flow_tf.model import saved_model
from bert_flow_tf.model.embedder import Embedder, warn_if_harmful

if TYPE_CHECKING:
    from bert_flow_tf.export.export import Exported
    from bert_flow_tf.scale.settings import ShardSettings
    from bert_flow_tf.scale.shards import Manifest, Parts
    from bert_flow_tf.training.settings import PretrainSettings

logger = logging.getLogger(__name__)

Self = TypeVar("Self", bound="BertFlow")


class BertFlow(Embedder):
    """A sentence embedding model: tokenizer, encoder and an optional flow.

        >>> model = BertFlow.from_hub("demo", pooling="avg-last-2")
        >>> model = model.fit(sentences)  # learns a flow, without labels
        >>> embeddings = model.encode(sentences)
        >>> embeddings.shape == (len(sentences), model.embedding_size)
        True
        >>> model.similarity("A boat.", sentences[:3]).shape
        (1, 3)
        >>> folder = model.save("my_model")
        >>> again = BertFlow.from_pretrained("my_model")
        >>> bool((again.encode(sentences) == embeddings).all())
        True

    `sentences` may be any iterable of strings, such as a list or a generator. `export` writes the
    model for other programs.

    The arguments are those of `model.embedder.Embedder`, whose methods this class has.

    Attributes:
      history_: `calibration.history.History` of the last `fit` or `fit_dataset`; after
        `from_pretrained`, its losses and its `verdict`, or None.
    """

    @classmethod
    def from_hub(
        cls: type[Self],
        bert_hub: str | os.PathLike,
        *,
        pooling: str | None = None,
        max_seq_length: int | None = None,
        preprocess_hub: str | None = None,
        low_dim: int = -1,
        sentence_embedding_type: str | None = None,
        dtype: str = DTYPES[0],
        truncate_dim: int | None = None,
    ) -> Self:
        """Return a `BertFlow` that has an encoder but no flow.

        Args:
          bert_hub: `demo`, `base`, `large`, a TF-Hub handle, a model of the Hugging Face Hub
            (`ORGANISATION/MODEL`), or a folder, see `encoder.source.resolve_encoder`;
            `preprocess_hub` is its preprocess model.
          pooling: `avg` (or `mean`), `cls`, `avg-last-2`, …, see `encoder.pooling`; by default the
            encoder's own, or `avg`. The original calls it `sentence_embedding_type`.
          max_seq_length: word pieces per sentence, [CLS] and [SEP] included; by default the
            encoder's own, or its number of positions, at most 256.
          low_dim: see `encoder.pooling.reduce_dimension`.
          truncate_dim: number of leading channels to keep; None keeps all.

        Raises:
          UserError: the encoder cannot be found or read, or an argument is invalid.
        """
        if saved_model.is_saved_model(bert_hub):
            logger.warning(
                "%s is a saved model, of which bert_hub loads only the encoder", bert_hub
            )
        if None not in (pooling, sentence_embedding_type) and pooling_name(
            str(pooling)
        ) != pooling_name(str(sentence_embedding_type)):
            raise ArgumentError(
                f"pooling: found {pooling} beside sentence_embedding_type="
                f"{sentence_embedding_type}, expected one of the two, which mean the same"
            )
        source = resolve_encoder(bert_hub=bert_hub, preprocess_hub=preprocess_hub)
        pooling = pooling_name(sentence_embedding_type or pooling or source.record.pooling or "avg")
        if max_seq_length is None:
            max_seq_length = source.record.max_seq_length or min(
                256, source.pretrained.max_positions
            )
        return cls(
            TextEncoder.build(source, pooling, max_seq_length=max_seq_length, dtype=dtype),
            low_dim=low_dim,
            truncate_dim=truncate_dim,
        )

    @classmethod
    def demo(cls: type[Self], **options: Any) -> Self:
        """Return `from_hub("demo")`, all-MiniLM-L6-v2; the first call downloads it."""
        return cls.from_hub("demo", **options)

    @classmethod
    def from_pretrained(
        cls: type[Self],
        path: str | os.PathLike,
        *,
        dtype: str = DTYPES[0],
        warm_up: bool = False,
        truncate_dim: int | None = None,
    ) -> Self:
        """Load a saved, Hub or exported model, or a run.

        `path` is a folder of `save`, `ORGANISATION/MODEL`, a folder of `run_siamese`, or a
        checkpoint's prefix. A folder of `export(format="onnx")` or `"openvino"` becomes a
        `runtime.model.ExportedModel`, which encodes and does not learn, see `open_export`. With
        `warm_up`, a text is encoded, so that the first request does not wait for a second while
        TensorFlow traces. `truncate_dim` is the number of leading channels to keep, by default as
        saved. Raises `UserError` if it cannot be read, or if the run has not finished.
        """
        if is_export(path):
            if dtype != DTYPES[0]:
                raise ArgumentError(
                    f"dtype: found {dtype} with {path}, an export, which has its own type"
                )
            from bert_flow_tf.runtime.model import open_export

            # Whoever names an export's folder expects what an export can do.
            return typing.cast(Self, open_export(path, truncate_dim=truncate_dim))
        folder = saved_model.model_folder(path)
        if saved_model.is_saved_model(folder):
            state = saved_model.load(folder, dtype)
        else:
            # Only the wing of the original's experiment reads runs.
            from bert_flow_tf.original.loading import load_run

            state = load_run(folder, dtype)
        with reading(folder, "a model"):
            loaded = cls(**state)
        if truncate_dim is not None:
            loaded.truncate_dim = truncate_dim
        if warm_up:
            loaded.encode("word")
        return loaded

    load = from_pretrained

    def __repr__(self) -> str:
        learned = self.record.flow
        flow = "no flow" if learned is None else learned.method
        if learned is not None and learned.config is not None:
            flow = f"a flow of {learned.config.n_levels} levels of {learned.config.depth} steps"
        given = (
            f"pooling={self.sentence_embedding_type!r}, max_seq_length={self.max_seq_length}, "
            f"dtype={self.dtype!r}"
        )
        return (
            f"BertFlow({self.source.bert_hub!r}, {given}): {self.embedding_size} channels, {flow}"
        )

    def check_method(self, method: Method) -> None:
        if self.low_dim > 0 and not method.has_flow:
            raise ArgumentError(
                f"low_dim: found {self.low_dim} with the method {method.name}; averages of its "
                "channels mean nothing, so leave it out"
            )

    def encode_dataset(
        self,
        inputs: str | os.PathLike | Iterable[str | os.PathLike],
        out: str | os.PathLike,
        settings: "ShardSettings | None" = None,
        *,
        input_format: str | None = None,
        column: str | None = None,
        keep: Sequence[str] | None = None,
        no_header: bool = False,
        show_progress_bar: bool | None = None,
        overwrite: bool = False,
    ) -> "Manifest":
        """Write the embeddings of files as a folder of Parquet files.

        The rows keep the input's order. Memory holds one shard. Repeat the call to resume after an
        interruption.

        Args:
          inputs: one or several files (text, TSV, CSV, JSON lines or Parquet) or `glob` patterns.
          settings: rows of a file, stored type, normalization and batch size, see
            `scale.settings.ShardSettings`.
          input_format: one of `tasks.sentence_files.INPUT_FORMATS`; by default from the file's
            ending.
          column: the column of the sentences, by default `sentence`.
          keep: the columns to copy beside the embeddings, by default the sentences.
          no_header: True if the first row of TSV or CSV is data; then columns are numbers from 1.
          overwrite: True to replace parts of another model or other settings, and to remove parts
            of files that are no longer given.

        Raises:
          scale.shards.ShardsError: some files are unreadable; the others are embedded.
          UserError: an argument is invalid, or the folder holds other files.
        """
        from bert_flow_tf.scale.settings import ShardSettings
        from bert_flow_tf.scale.shards import Job, LocalEngine, input_files

        settings = settings or ShardSettings()
        files = input_files(
            inputs, file_format=input_format, column=column, keep=keep, no_header=no_header
        )
        job = Job(files, out, settings, overwrite=overwrite)
        return job.run(LocalEngine(self, out, settings), show_progress_bar=show_progress_bar)

    def _set_fitted(self: Self, fitted: Fitted) -> Self:
        settings = fitted.record.training.settings | {"dtype": self.dtype}
        training = msgspec.structs.replace(fitted.record.training, settings=settings)
        learned = msgspec.structs.replace(fitted.record, training=training)
        self._set_maps(fitted.maps, learned)
        self.history_ = fitted.history
        return self

    @suggesting_arguments()
    def fit_dataset(
        self: Self,
        folder: str | os.PathLike,
        settings: FitSettings | None = None,
        *,
        pairs: Pairs | None = None,
        metric: str | None = None,
        show_progress_bar: bool | None = None,
    ) -> Self:
        """Learn a flow as `fit` does, from a folder that `encode_dataset` wrote."""
        settings = settings or FitSettings()
        for name in ("method", "dev_fraction"):
            value = getattr(settings, name)
            if value != getattr(FitSettings, name):
                expected = "expected a flow that learns from all of them"
                raise ArgumentError(
                    f"{name}: found {value} with a folder of embeddings, {expected}"
                )
        measuring = self._measuring(pairs, metric)
        fitted = learn(
            self.parts(folder),
            find_method("flow"),
            settings,
            measuring,
            show_progress_bar=show_progress_bar,
        )
        return self._set_fitted(fitted)

    def parts(self, folder: str | os.PathLike) -> "Parts":
        """Open a folder that `encode_dataset` wrote with this encoder and no flow.

        Raises `UserError` for embeddings of another model, or normalized ones.
        """
        from bert_flow_tf.scale.shards import Parts

        parts = Parts(folder)
        bare = copy.copy(self)
        bare.low_dim = -1
        bare.truncate_dim = None
        bare.maps = []
        found = parts.manifest.model
        if found == bare.fingerprint_of(normalize=False):
            return parts
        if found in (bare.fingerprint, bare.fingerprint_of(normalize=True)):
            raise UserError(f"{folder}: found normalized embeddings, expected unnormalized ones")
        expected = "this encoder with this pooling, length, prompt and dtype, without a flow"
        raise UserError(f"{folder}: found embeddings of another model, expected {expected}")

    def pretrain(
        self,
        sentences: Iterable[str],
        out_dir: str | os.PathLike,
        settings: "PretrainSettings | None" = None,
        *,
        overwrite: bool = False,
        show_progress_bar: bool | None = None,
    ) -> "BertFlow":
        """Train the encoder by masked language modelling; return a new model.

        This model does not change. Repeat the call to resume after an interruption. See
        `training.pretrain`.

        Args:
          sentences: sentences or paragraphs; those longer than `settings.max_seq_length` are split.
          out_dir: the new encoder folder; checkpoints are in `OUT_DIR.pretraining`. `overwrite`
            replaces both.
          settings: by default, those of `training.settings.PretrainSettings` with the model's own
            `max_seq_length`.

        Raises:
          UserError: the text or a setting is invalid, or a run has already trained this encoder.
        """
        if self.encoder.trained:
            raise UserError(
                "pretrain: found an encoder that a run trained; first run bert-flow convert --run"
            )
        from bert_flow_tf.training.pretrain import pretrain
        from bert_flow_tf.training.settings import PretrainSettings

        settings = settings or PretrainSettings(max_seq_length=self.max_seq_length)
        show = sys.stderr.isatty() if show_progress_bar is None else show_progress_bar
        pretrain(
            sentences, self.source, out_dir, settings, overwrite=overwrite, show_progress_bar=show
        )
        return BertFlow.from_hub(
            out_dir,
            pooling=self.sentence_embedding_type,
            max_seq_length=self.max_seq_length,
            low_dim=self.low_dim,
            dtype=self.dtype,
        )

    def save(self, path: str | os.PathLike, *, overwrite: bool = False) -> pathlib.Path:
        """Write the whole model for `from_pretrained`; return the folder's path."""
        return saved_model.save(self, path, overwrite=overwrite)

    save_pretrained = save

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the model to the Hugging Face Hub; return the commit's URL.

        `from_pretrained(repo_id)` loads it again. The options are those of
        `huggingface_hub.ModelHubMixin.push_to_hub`. Raises `UserError` if the Hub rejects it.
        """
        warn_if_harmful("push_to_hub", self.record.flow)
        return saved_model.push_to_hub(self, repo_id, **options)

    @suggesting_arguments()
    def export(
        self,
        out_dir: str | os.PathLike,
        *,
        format: str = ExportSettings.format,
        version: int | None = ExportSettings.version,
        normalize: bool = ExportSettings.normalize,
        low_dim: int | None = ExportSettings.low_dim,
        max_seq_length: int | None = ExportSettings.max_seq_length,
        truncate_dim: int | None = ExportSettings.truncate_dim,
        dtype: str = ExportSettings.dtype,
        texts: Iterable[str] = (),
        overwrite: bool = False,
    ) -> "Exported":
        """Write the model for other programs, and check the files.

        See `export.export.export_model`.

        Args:
          out_dir: the folder; for a SavedModel, TensorFlow Serving's base path, which has a folder
            per version.
          format: "savedmodel" (for TensorFlow Serving), "sentence-transformers", "onnx" or
            "openvino".
          version: positive; None for the next one. SavedModel only.
          normalize: True to scale every embedding to norm 1 (not those before the flow).
          low_dim: see `encoder.pooling.reduce_dimension`; None for the model's own.
          max_seq_length: word pieces per sentence, longer ones are cut; None for the model's own.
          truncate_dim: number of leading channels to keep; None for the model's own.
          dtype: "float32"; "bfloat16" for the encoder's matrices and their products in a
            SavedModel; "int8" for the matrices in ONNX.
          texts: texts like those that the export will embed; up to 200 of them, of all lengths,
            are checked, too.
          overwrite: True to replace this version or folder; a server that has loaded it keeps it.
        """
        settings = chosen(ExportSettings, locals())
        from bert_flow_tf.export.export import export_model

        return export_model(self, out_dir, settings, texts=texts, overwrite=overwrite)
