"""BertFlow: sentence embeddings from Python, of a trained run or with a flow learned on one's own sentences."""

import hashlib
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import tensorflow as tf
from absl import logging

from bert_flow_tf.encoder import stream
from bert_flow_tf.encoder.convert.folders import read_encoder_record
from bert_flow_tf.encoder.convert.from_checkpoint import run_checkpoint
from bert_flow_tf.encoder.source import EncoderSource, recorded_encoder, resolve_encoder
from bert_flow_tf.encoder.stream import ENCODE_PRECISIONS, SentenceBatcher, quantized
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.evaluation.flow_checks import change_by
from bert_flow_tf.evaluation.similarities import FUNCTIONS, check_similarity_name, embeddings_of, similarities
from bert_flow_tf.files.reading import update_with_arrays
from bert_flow_tf.files.sentence_files import PART, sentence_list
from bert_flow_tf.model import saved_model
from bert_flow_tf.model.build import build_model, encoder_record, restore
from bert_flow_tf.model.siamese import SiameseBertFlow, reduce_dimension
from bert_flow_tf.runs.folder import TRAIN_RESULTS_FILE
from bert_flow_tf.runs.record import Model, Training, flow_record, model_at
from bert_flow_tf.scale.parts import PART_PRECISIONS, Manifest, Parts, PartSettings
from bert_flow_tf.scale.shards import Engine, Job, input_files
from bert_flow_tf.serving import DTYPES
from bert_flow_tf.training.fitting import (
    History,
    check_settings,
    flow_settings,
    hold_out,
    learn_blocks,
    learned_by,
)
from glow.config import DEFAULT_CONFIG
from glow.flow import Glow
from glow.folded import FoldedFlow, can_fold

if TYPE_CHECKING:
    from glow.calibrator import FlowCalibrator

# Poolings by sentence-transformers' names; its cls is the last state at [CLS], the original's BERT's pooled output.
_POOLINGS = {"mean": "avg", "mean_tokens": "avg", "cls_token": "paper-cls"}


class BertFlow:
    """Sentences to embeddings: tokenizer, encoder, and, if there is one, the flow.

        model = BertFlow.from_hub("demo", pooling="avg-last-2")
        model.fit(sentences)                      # the flow, on your own sentences; no labels
        embeddings = model.encode(sentences)      # float32 [n, D]
        model.similarity("A boat.", sentences)    # cosines [1, n]
        model.save("my_model")                    # BertFlow.from_pretrained("my_model")
        model.export("exported")                  # exported/1/saved_model.pb, for TensorFlow Serving

    Sentences are a list or any other iterable of strings, a generator too. Those of like length share a batch, and one
    that recurs is computed once. An empty string is a sentence of no word pieces.

    Args:
      model: with an encoder.
      source: of that encoder.
      record: what results say of the model: pooling, length, and what it learned on.
      encoder_trained: whether the encoder has other weights than `source`.
      dtype: "float32", or "bfloat16" for the encoder's matrices and their products, which is faster on GPUs of
        compute capability 8.0 or more and on CPUs with AMX. The rounded matrices are a copy; `save` and `export` write
        the float32 ones.

    Attributes:
      record: as above, of the model as it is now.
      embedding_size: length of an embedding, as `encode` gives it.
      pooled: callable from token tensors to embeddings before the flow, in `dtype`.
      encoder: `SentenceEncoder`, float32.
      flow: `glow.flow.Glow`, or None.
      tokenizer: `Tokenizer`.
      prompts: texts by name, for `encode`'s `prompt_name`.
      history_: `History` of the last `fit` or `fit_dataset`; None before.
    """

    def __init__(
        self,
        model: SiameseBertFlow,
        source: EncoderSource,
        *,
        record: Model,
        encoder_trained: bool = False,
        dtype: str = DTYPES[0],
    ) -> None:
        _check_dtype(dtype)
        self.source = source
        self.sentence_embedding_type = record.pooling
        self._max_seq_length = record.max_seq_length
        self.encoder_trained = encoder_trained
        self.tokenizer = Tokenizer.from_source(source)
        self.encoder = model.encoder
        self.dtype = dtype
        self.pooled = self.encoder.in_bfloat16() if dtype == "bfloat16" else self.encoder
        self.history_: History | None = None
        self.prompts: dict[str, str] = {}
        self.similarity_fn_name = "cosine"
        self._use(model, record)

    def _use(self, model: SiameseBertFlow, record: Model) -> None:
        self.record = record
        self.flow = model.flow
        self.low_dim = model.low_dim
        self.embedding_size = model.output_size
        self._make_batchers()

    def _make_batchers(self) -> None:
        self._fold()
        if self.flow is not None:
            flow = self.flow
            self._log_prob = self._batcher(lambda tokens: flow.log_prob(self.pooled.embed(tokens)), ())

    def _fold(self) -> None:
        """Makes what `encode` computes from the flow's current variables."""
        foldable = self.flow is not None and can_fold(self.flow)
        folded = FoldedFlow(self.flow) if foldable else None
        self._embeddings = self._batcher(lambda tokens: self.embed_tokens(tokens, folded), (self.embedding_size,))
        # Last: another thread that finds it current finds the embeddings that go with it.
        self._folded = folded

    def _current_embeddings(self) -> SentenceBatcher:
        """What `encode` computes: a flow whose variables were changed since is folded again."""
        if self._folded is not None and not self._folded.is_current():
            self._fold()
        return self._embeddings

    def _batcher(self, encode: Callable[[dict[str, tf.Tensor]], tf.Tensor], shape: tuple[int, ...]) -> SentenceBatcher:
        return SentenceBatcher(encode, self.tokenizer, shape=shape, max_seq_length=self.max_seq_length)

    @classmethod
    def from_hub(
        cls,
        bert_hub: str | os.PathLike,
        *,
        pooling: str | None = None,
        max_seq_length: int | None = None,
        preprocess_hub: str | None = None,
        low_dim: int = -1,
        sentence_embedding_type: str | None = None,
        dtype: str = DTYPES[0],
    ) -> "BertFlow":
        """`BertFlow` of an encoder as it is, without a flow; `fit` learns one.

        Args:
          bert_hub: `demo`, `base`, `large`, a TF-Hub handle, a model of the Hugging Face Hub (`ORGANISATION/MODEL`), or
            a folder, see `encoder.source.resolve_encoder`.
          pooling: how word pieces become one vector: `avg` (or `mean`), `cls`, `avg-last-2`, …, see `pooling.pooling`;
            None takes that of a sentence-transformers model, and `avg` for others.
          max_seq_length: word pieces that a sentence is cut to, [CLS] and [SEP] included; None takes a
            sentence-transformers model's, and 64 for others.
          preprocess_hub: the preprocess model, where `bert_hub` does not name it.
          low_dim: see `model.reduce_dimension`.
          sentence_embedding_type: the original's name for `pooling`, in place of it.

        Raises:
          UserError: the encoder cannot be reached, or does not fit the other arguments.
        """
        _check_dtype(dtype)
        if saved_model.is_saved_model(bert_hub):
            logging.warning(
                "%s is a saved model: as bert_hub it is its encoder alone, without its flow, pooling and length",
                bert_hub,
            )
        source = resolve_encoder(bert_hub=bert_hub, preprocess_hub=preprocess_hub)
        folder = read_encoder_record(source.encoder_dir.parent)
        asked_for = (None, None) if folder is None else (folder.pooling, folder.max_seq_length)
        poolings = (sentence_embedding_type, pooling, asked_for[0], "avg")
        lengths = (max_seq_length, asked_for[1], 64)
        record = Model(
            encoder=encoder_record(source),
            pooling=_POOLINGS.get(asked := next(name for name in poolings if name is not None), asked),
            max_seq_length=next(length for length in lengths if length is not None),
            low_dim=low_dim if low_dim > 0 else None,
        )
        return cls(build_model(source, record), source, record=record, dtype=dtype)

    @classmethod
    def demo(cls, **options: Any) -> "BertFlow":
        """`BertFlow` of the demo encoder, all-MiniLM-L6-v2, downloaded once; options as of `from_hub`."""
        return cls.from_hub("demo", **options)

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike, *, dtype: str = DTYPES[0]) -> "BertFlow":
        """`BertFlow` of a folder that `save` wrote, or of a finished run of `run_siamese` (see `load`).

        Where there is no such folder, `ORGANISATION/MODEL` is a model that `push_to_hub` wrote on the Hugging Face Hub,
        with `@REVISION` after it for another than the last; the hub's own cache and variables count.

        Raises:
          UserError: it is none of these, of another format version, or a file is missing or altered; the line names it.
        """
        _check_dtype(dtype)
        path = saved_model.model_folder(path)
        if not saved_model.is_saved_model(path):
            saved_model.check_model_folder(path)
            return cls.load(path, dtype=dtype)
        model, source, config = saved_model.load(path)
        loaded = cls(model, source, record=config.model, dtype=dtype)
        loaded.prompts, loaded.similarity_fn_name = dict(config.prompts), config.similarity_fn_name
        return loaded

    @classmethod
    def load(cls, run: str | os.PathLike, *, dtype: str = DTYPES[0]) -> "BertFlow":
        """`BertFlow` of a finished run of `run_siamese`, or of a folder that `save` wrote.

        `run` is the run's directory, for its last checkpoint, or the prefix of one of its checkpoints.

        Raises:
          UserError: it is not a run, its training has not finished, or its encoder cannot be found.
        """
        _check_dtype(dtype)
        if saved_model.is_saved_model(run):
            return cls.from_pretrained(run, dtype=dtype)
        checkpoint, config = run_checkpoint(run)
        if not (checkpoint.parent / TRAIN_RESULTS_FILE).is_file():
            raise UserError(
                f"{checkpoint.parent}: found a run whose training has not finished, expected a finished one "
                "(rerun the same command to resume)"
            )
        source = recorded_encoder(config)
        model = build_model(source, config.model, num_labels=config.num_labels)
        restore(model, checkpoint, with_encoder=config.encoder_trained)
        record = model_at(config, checkpoint)
        return cls(model, source, record=record, encoder_trained=config.encoder_trained, dtype=dtype)

    @property
    def max_seq_length(self) -> int:
        """Word pieces that a sentence is cut to, [CLS] and [SEP] included; may be set."""
        return self._max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        most = self.encoder.max_seq_length or sys.maxsize
        if isinstance(value, bool) or not isinstance(value, int) or not 3 <= value <= most:
            raise ArgumentError(f"max_seq_length: found {value!r}, expected a whole number from 3 to {most}")
        self._max_seq_length = value
        self.record = msgspec.structs.replace(self.record, max_seq_length=value)
        self._make_batchers()

    def get_max_seq_length(self) -> int:
        """`max_seq_length`."""
        return self.max_seq_length

    def get_embedding_dimension(self) -> int:
        """`embedding_size`."""
        return self.embedding_size

    get_sentence_embedding_dimension = get_embedding_dimension

    def tokenize(self, sentences: Sequence[str]) -> dict[str, tf.Tensor]:
        """What `embed_tokens` takes: dict of `input_word_ids`, `input_mask`, `input_type_ids`, int32 [n, t]."""
        return self.tokenizer(tf.constant(sentence_list(sentences), tf.string), self.max_seq_length)

    def __repr__(self) -> str:
        config = None if self.flow is None else self.flow.config
        flow = "no flow" if config is None else f"a flow of {config.n_levels} levels of {config.depth} steps"
        return (
            f"BertFlow({self.source.bert_hub!r}, pooling={self.sentence_embedding_type!r}, "
            f"max_seq_length={self.max_seq_length}, dtype={self.dtype!r}): {self.embedding_size} channels, {flow}"
        )

    def __copy__(self) -> "BertFlow":
        """Another one of the same encoder, flow and settings, which are not copied."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        # Those of this one ask it for its flow, which a later `fit` replaces.
        copied._make_batchers()
        return copied

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hex, of what the embeddings depend on: weights, vocabulary, flow, pooling, length and dtype."""
        return self._fingerprint(self.flow, self.low_dim)

    def _fingerprint(self, flow: Glow | None, low_dim: int) -> str:
        described = [self.source.fingerprint, self.sentence_embedding_type, self.max_seq_length, low_dim]
        config = None if flow is None else flow.config
        digest = hashlib.sha256(msgspec.json.encode([*described, self.dtype, config]))
        if self.encoder_trained:
            update_with_arrays(digest, _arrays(self.encoder.variables_by_name))
        if flow is not None:
            update_with_arrays(digest, _arrays(flow.variables_by_path))
        return digest.hexdigest()

    def embed_tokens(self, tokens: dict[str, tf.Tensor], folded: FoldedFlow | None = None) -> tf.Tensor:
        """Embeddings [n, embedding_size] of token tensors, dict of int32 [n, t] as `Tokenizer.pack` gives it.

        `folded` is taken in place of the flow.
        """
        u = self.pooled.embed(tokens)
        z = u if self.flow is None else (folded or self.flow.forward)(u)
        return reduce_dimension(z, self.low_dim)

    def embed(self, sentences: tf.Tensor) -> tf.Tensor:
        """Embeddings, float32 [n, embedding_size], of a string tensor [n], in a graph: a `tf.data` map function.

        dataset = tf.data.TextLineDataset("sentences.txt").batch(64).map(model.embed)
        """
        embeddings = self.embed_tokens(self.tokenizer(sentences, self.max_seq_length))
        return tf.ensure_shape(embeddings, [None, self.embedding_size])

    def encode(
        self,
        sentences: str | Iterable[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        output_value: str = "sentence_embedding",
        precision: str = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
    ) -> Any:
        """Embeddings of the sentences, float32 [n, embedding_size]; [embedding_size] of a single string.

        The arguments are those of sentence-transformers, in its order; what it has and this has not is in
        docs/sentence_transformers.md, with the reasons.

        Args:
          prompt_name: key of `prompts`, whose text is `prompt`.
          prompt: text put before each sentence.
          batch_size: sentences per step; None takes those with up to 2,048 word pieces, which CPUs run fastest.
          show_progress_bar: None shows it on a terminal only.
          output_value: "sentence_embedding".
          precision: "int8", "uint8", "binary" or "ubinary" for embeddings in fewer bytes, see `stream.quantized`.
          convert_to_numpy: arrays; else a list of one `tf.Tensor` per sentence.
          convert_to_tensor: one `tf.Tensor`; overrides `convert_to_numpy`.
          device: None; TensorFlow computes on the GPU that it sees (CUDA_VISIBLE_DEVICES), else on CPUs.
          normalize_embeddings: scale every embedding to norm 1.
          truncate_dim: keep that many channels, the first ones.

        Raises:
          UserError: an element is not a string, or an argument is invalid.
        """
        if device is not None:
            raise ArgumentError(f"device: found {device!r}, expected None: TensorFlow takes the GPU that it sees")
        if truncate_dim is not None and not 1 <= truncate_dim <= self.embedding_size:
            raise ArgumentError(f"truncate_dim: found {truncate_dim!r}, expected 1 to {self.embedding_size}")
        if precision not in ENCODE_PRECISIONS:
            expected = ", ".join(ENCODE_PRECISIONS)
            raise ArgumentError(f"precision: found {precision!r}, expected one of {expected}")
        prompt = self._prompt(prompt_name, prompt)
        if output_value != "sentence_embedding":
            raise ArgumentError(f"output_value: found {output_value!r}, expected 'sentence_embedding'")
        single = isinstance(sentences, str)
        sentences = [sentences] if isinstance(sentences, str) else sentences
        if prompt:
            sentences = [prompt + sentence for sentence in sentence_list(sentences)]
        batcher = self._current_embeddings()
        found = batcher.encode(sentences, batch_size=batch_size, show_progress_bar=show_progress_bar)[:, :truncate_dim]
        if normalize_embeddings:
            found = tf.nn.l2_normalize(found, axis=-1).numpy()
        found = quantized(found, precision)
        result = found[0] if single else found
        if convert_to_tensor or (single and not convert_to_numpy):
            return tf.constant(result)
        return result if convert_to_numpy else [tf.constant(one) for one in found]

    def encode_query(self, sentences: str | Iterable[str], **options: Any) -> Any:
        """`encode` with the prompt "query", where `prompts` has one and no other is named."""
        return self.encode(sentences, **self._with_prompt(("query",), options))

    def encode_document(self, sentences: str | Iterable[str], **options: Any) -> Any:
        """`encode` with the first prompt of "document", "passage" and "corpus", where none is named."""
        return self.encode(sentences, **self._with_prompt(("document", "passage", "corpus"), options))

    def _with_prompt(self, names: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
        is_named = options.get("prompt_name") is not None or options.get("prompt") is not None
        known = [name for name in names if name in self.prompts]
        return options if is_named or not known else {**options, "prompt_name": known[0]}

    def _prompt(self, prompt_name: str | None, prompt: str | None) -> str:
        if prompt is not None:
            return prompt
        if prompt_name is not None and prompt_name not in self.prompts:
            found = ", ".join(self.prompts) or "no prompts"
            raise ArgumentError(f"prompt_name: found {prompt_name!r}, expected a key of prompts, which has {found}")
        return "" if prompt_name is None else self.prompts[prompt_name]

    def encode_parts(
        self,
        sentences: Iterable[str],
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool = False,
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yields pairs of a list of sentences and their embeddings, float32 [k, embedding_size], in order.

        For streams whose embeddings do not fit into memory: nothing is kept from one part to the next. Raises as
        `encode`.
        """
        options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
        for part, embeddings in self._current_embeddings().encode_parts(sentences, **options):
            yield part, tf.nn.l2_normalize(embeddings, axis=-1).numpy() if normalize_embeddings else embeddings

    def encode_dataset(
        self,
        inputs: str | os.PathLike | Iterable[str | os.PathLike],
        out: str | os.PathLike,
        *,
        input_format: str | None = None,
        column: str | None = None,
        keep: Sequence[str] | None = None,
        shard_rows: int = PART,
        precision: str = PART_PRECISIONS[0],
        normalize_embeddings: bool = False,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        overwrite: bool = False,
    ) -> Manifest:
        """Writes the embeddings of files into a folder, `part-FILE-SHARD.parquet` for each shard, and its manifest.

        A call that was interrupted is made again: it keeps the parts of the same input, model and settings. The parts
        in their names' order have the rows in the input's order. No more than a shard is in memory.

        Args:
          inputs: a file of text, TSV, CSV, JSON lines or Parquet, a pattern as of `glob`, or several of either.
          out: the folder.
          input_format: where the files' endings do not say it; see `files.sentence_files.FORMATS`.
          column: of the sentences; None for `sentence`.
          keep: names of the columns written beside `embedding`; None for the sentences' own. They are strings, JSON's
            other values as their text, but for those of Parquet, which keep their types.
          shard_rows: sentences in a shard.
          precision: "float32" or "float16", of the embeddings in the files.
          normalize_embeddings: as of `encode`.
          batch_size: as of `encode`.
          show_progress_bar: as of `encode`.
          overwrite: replace what another model, other input or other settings gave.

        Raises:
          scale.shards.ShardsError: files cannot be read, and all others are done.
          UserError: an argument is invalid, or the folder holds something else and is not to be overwritten.
        """
        files = input_files(inputs, file_format=input_format, column=column, keep=keep)
        settings = PartSettings(
            shard_rows=shard_rows,
            precision=precision,
            normalize_embeddings=normalize_embeddings,
            batch_size=batch_size,
        )
        job = Job(files, out, settings, overwrite=overwrite)
        return job.run(Engine(self, out, settings), show_progress_bar=show_progress_bar)

    def log_prob(
        self, sentences: str | Iterable[str], batch_size: int | None = None, show_progress_bar: bool | None = None
    ) -> np.ndarray:
        """The log-density of each sentence's embedding before the flow, float32 [n], in nats; a number for a string.

        Raises:
          UserError: there is no flow, or an element is not a string.
        """
        self._needed_flow("log_prob")
        if isinstance(sentences, str):
            return self.log_prob([sentences], batch_size, show_progress_bar)[0]
        return self._log_prob.encode(sentences, batch_size=batch_size, show_progress_bar=show_progress_bar)

    def bits_per_dim(
        self, sentences: str | Iterable[str], batch_size: int | None = None, show_progress_bar: bool | None = None
    ) -> np.ndarray:
        """The flow's loss of each sentence, float32 [n]: -log2 of its density per dimension; see `log_prob`."""
        flow = self._needed_flow("bits_per_dim")
        return self.log_prob(sentences, batch_size, show_progress_bar) / (-flow.event_size * np.log(2.0))

    def after_flow(self, u: np.ndarray) -> np.ndarray:
        """Embeddings, float32 [n, embedding_size], of those before the flow, float32 [n, D]; see `encode_pooled`."""
        return reduce_dimension(self._needed_flow("after_flow").forward(u), self.low_dim).numpy()

    def inverse(self, z: Any) -> np.ndarray:
        """Embeddings before the flow, float32 [n, D] or [D], whose latents, the embeddings of `encode`, are `z`.

        Raises:
          UserError: there is no flow, `low_dim` averages its latents, or `z` has another width.
        """
        flow = self._needed_flow("inverse")
        if self.low_dim > 0:
            raise UserError(f"inverse: found low_dim {self.low_dim}, which averages latents, expected none")
        z = np.asarray(z, np.float32)
        if z.ndim not in (1, 2) or z.shape[-1] != flow.event_size:
            raise UserError(f"inverse: found an array of shape {list(z.shape)}, expected [n, {flow.event_size}]")
        return flow.inverse(z).numpy()

    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """Embeddings before the flow, float32 [n, D], drawn from its density; the same for the same int `seed`."""
        return self._needed_flow("sample").sample(n, seed).numpy()

    def _needed_flow(self, what: str) -> Glow:
        if self.flow is None:
            raise UserError(f"{what}: found a model without a flow, expected one (fit() learns it)")
        return self.flow

    def similarity(self, a: Any, b: Any) -> np.ndarray:
        """Cosines float32 [n, m] of `a` and `b`, each embeddings [n, D] or [D], a string, or strings.

        `similarity_fn_name` names another function than the cosine.

        Raises:
          UserError: they are neither, or their widths differ.
        """
        return similarities(self.similarity_fn_name, *self._both(a, b))

    def similarity_pairwise(self, a: Any, b: Any) -> np.ndarray:
        """float32 [n]: as `similarity`, of the first of `a` with the first of `b`, and so on."""
        a, b = self._both(a, b)
        if len(a) != len(b):
            raise UserError(f"similarity_pairwise: found {len(a)} and {len(b)} rows, expected the same number")
        return FUNCTIONS[self.similarity_fn_name](a, b)

    def _both(self, a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
        a, b = embeddings_of(a, "a", self.encode), embeddings_of(b, "b", self.encode)
        if a.shape[1] != b.shape[1]:
            raise UserError(f"similarity: found {a.shape[1]} and {b.shape[1]} channels, expected the same number")
        return a, b

    @property
    def similarity_fn_name(self) -> str:
        """What `similarity` computes: "cosine", "dot", or the negative distance "euclidean" or "manhattan"."""
        return self._similarity_fn_name

    @similarity_fn_name.setter
    def similarity_fn_name(self, name: str) -> None:
        check_similarity_name(name)
        self._similarity_fn_name = name

    def fit(
        self,
        sentences: Iterable[str],
        *,
        flow_model_config: str | os.PathLike = DEFAULT_CONFIG,
        epochs: float | None = None,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        seed: int = 1234,
        dev_fraction: float = 0.05,
        show_progress_bar: bool | None = None,
    ) -> "BertFlow":
        """The model itself, after learning a new flow on the sentences: no labels, the encoder stays as it is.

        `glow.FlowCalibrator` on the sentences' embeddings, computed once, without dropout: what `run_siamese --flow=1
        --flow_loss=1 --num_examples=0 --cache_embeddings` learns from pairs, whose two losses it adds. Without the last
        of these flags the flow sees the original's dropout. On an exception the model stays as it was. `history_` says
        what the flow changes of the space.

        Args:
          sentences: each counts as often as it occurs.
          flow_model_config: name of a shipped configuration, or a JSON file.
          epochs: None for one, or as many as give 300 steps.
          batch_size: sentences per step.
          learning_rate: constant.
          seed: of the sentences' order and of the flow's initial values.
          show_progress_bar: None shows it on a terminal only.
          dev_fraction: of the different sentences, which are held out to measure `history_.change`: 1,000 at most, and
            none where that were fewer than 10.

        Raises:
          UserError: too few sentences for a step, an invalid argument, or a loss that is not finite.

        Warns after fewer than 100 steps.
        """
        check_settings(epochs, batch_size=batch_size, learning_rate=learning_rate, seed=seed)
        sentences = sentence_list(sentences)
        if len(sentences) < batch_size:
            raise UserError(
                f"fit: found {len(sentences)} sentences, expected at least the {batch_size} of one step "
                "(see batch_size)"
            )
        kept, held_out = hold_out(sentences, dev_fraction, batch_size, seed)
        settings = flow_settings(epochs, batch_size, learning_rate, len(kept))

        def learn(calibrator: "FlowCalibrator") -> None:
            calibrator.fit(self.encode_pooled(kept))

        return self._learn(learn, len(kept), flow_model_config, settings, seed, show_progress_bar, held_out)

    def encode_pooled(self, sentences: Sequence[str]) -> np.ndarray:
        """Embeddings of the sentences before the flow, float32 [n, D]."""
        pieces = stream.tokenize(self.tokenizer, sentences, self.max_seq_length)
        return stream.embed(self.pooled, self.tokenizer, pieces, self.max_seq_length)

    def fit_dataset(
        self,
        folder: str | os.PathLike,
        *,
        flow_model_config: str | os.PathLike = DEFAULT_CONFIG,
        epochs: float | None = None,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        seed: int = 1234,
        show_progress_bar: bool | None = None,
    ) -> "BertFlow":
        """The model itself, after learning a new flow on embeddings in a folder, of which a block is in memory.

        `encode_dataset` of this encoder wrote them, without a flow. Every epoch takes the parts in another order, and
        `scale.parts.BLOCK_ROWS` rows at a time, the last ones with up to as many more, in a random order; the rest is
        as of `fit`. On an exception the model stays as it was.

        Args:
          folder: of parts and their manifest; it may be of either precision.
          flow_model_config: this and all others as of `fit`.
          batch_size: a step may take a few more rows, see `glow.FlowCalibrator.partial_fit`.

        Raises:
          UserError: parts are missing or of another encoder, or as `fit`.

        Warns after fewer than 100 steps.
        """
        check_settings(epochs, batch_size=batch_size, learning_rate=learning_rate, seed=seed)
        parts = self.parts(folder)
        settings = flow_settings(epochs, batch_size, learning_rate, parts.rows)

        def learn(calibrator: "FlowCalibrator") -> None:
            learn_blocks(calibrator, parts.blocks, parts.rows, show_progress_bar)

        return self._learn(learn, parts.rows, flow_model_config, settings, seed, False)

    def parts(self, folder: str | os.PathLike) -> Parts:
        """The embeddings in a folder, which `encode_dataset` of this encoder wrote without a flow.

        Raises:
          UserError: parts are missing, of another encoder, pooling, length or dtype, with a flow, or of norm 1.
        """
        parts = Parts(folder)
        expected, found = self._fingerprint(None, -1), parts.manifest.model
        if found != expected:
            raise UserError(
                f"{folder}: found embeddings of {found[:12]}…, expected of {expected[:12]}…, this encoder with this "
                "pooling, length and dtype, without a flow"
            )
        if parts.manifest.settings.normalize_embeddings:
            raise UserError(f"{folder}: found embeddings of norm 1, expected them as the encoder gives them")
        return parts

    def _learn(
        self,
        learn: Callable[["FlowCalibrator"], None],
        rows: int,
        flow_model_config: str | os.PathLike,
        settings: dict[str, Any],
        seed: int,
        show_progress_bar: bool | None,
        held_out: Sequence[str] = (),
    ) -> "BertFlow":
        """The model itself, with the flow that `learn` has a new calibrator learn; see `fit`."""
        calibrator = learned_by(learn, rows, flow_model_config, settings, seed, show_progress_bar)
        flow = calibrator.flow_
        change = change_by(flow, self.encode_pooled(held_out)) if held_out else None
        sizes = {"sentences": rows, "held_out": len(held_out), "steps": calibrator.n_steps_}
        training = Training(settings={**sizes, "dtype": self.dtype, **settings}, seed=seed)
        record = msgspec.structs.replace(self.record, flow=flow_record(flow.config, training))
        self._use(SiameseBertFlow(self.encoder, flow, low_dim=self.low_dim), record)
        self.history_ = History(calibrator.losses_, change)
        return self

    def pretrain(
        self,
        sentences: Iterable[str],
        out_dir: str | os.PathLike,
        *,
        overwrite: bool = False,
        show_progress_bar: bool | None = None,
        **settings: Any,
    ) -> "BertFlow":
        """`BertFlow`, without a flow, of the encoder folder `out_dir`: this encoder after masked language modelling.

            mine = BertFlow.demo().pretrain(text, "encoders/mine", steps=2000)

        What learns is the encoder as `from_hub` loaded it; this model stays as it is. If it is interrupted, the same
        call resumes. See `training.pretrain`.

        Args:
          sentences: of the text, or paragraphs.
          overwrite: replace an encoder folder, and a run of other settings beside it.
          show_progress_bar: with a line for each dev loss; None shows it on a terminal only.
          **settings: of `runs.pretraining.PretrainingSettings`: `steps`, `learning_rate`, …;
            `max_seq_length` is the model's.

        Raises:
          UserError: the text or a setting does not fit, `out_dir` may not be written, or the encoder was trained by a
            run (`bert-flow convert --run` makes an encoder folder of it).
        """
        if self.encoder_trained:
            raise UserError(
                f"pretrain: found the encoder that a run trained from {self.source.bert_hub}, expected one by its name "
                "or folder (bert-flow convert --run makes a folder)"
            )
        from bert_flow_tf.runs.pretraining import PretrainingSettings
        from bert_flow_tf.training.pretrain import pretrain, report_line

        length: dict[str, Any] = {"max_seq_length": self.max_seq_length}
        if show_progress_bar is None:
            show_progress_bar = sys.stderr.isatty()
        pretrain(
            sentences,
            self.source,
            out_dir,
            PretrainingSettings(**length | settings),
            overwrite=overwrite,
            report=report_line if show_progress_bar else lambda line: None,
            show_progress_bar=show_progress_bar,
        )
        return BertFlow.from_hub(
            out_dir,
            pooling=self.sentence_embedding_type,
            **length,
            low_dim=self.low_dim,
            dtype=self.dtype,
        )

    def save(self, path: str | os.PathLike, *, overwrite: bool = False) -> pathlib.Path:
        """pathlib.Path of the folder written: the whole model, for `from_pretrained`; see `saved_model.save`."""
        return saved_model.save(self, path, overwrite=overwrite)

    save_pretrained = save

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload what `save` writes to the Hugging Face Hub, for `from_pretrained(repo_id)`.

        No sentence and no path of this machine is uploaded.

        Args:
          repo_id: `ORGANISATION/MODEL`.
          **options: `private`, `token`, `commit_message`, `branch` and `create_pr`, as of
            `huggingface_hub.ModelHubMixin.push_to_hub`.

        Returns:
          The address of the commit.

        Raises:
          UserError: the hub cannot be reached or refuses.
        """
        return saved_model.push_to_hub(self, repo_id, **options)

    def export(self, out_dir: str | os.PathLike, *, format: str = "savedmodel", **options: Any) -> Any:
        """Writes the model for other programs, and gives an `Exported`; whole or not at all.

        Args:
          out_dir: the model's folder.
          format: "savedmodel", from text to embeddings, for TensorFlow Serving; "sentence-transformers", a folder that
            this library loads; or "onnx".
          **options: of `serving.export.export_model`.

        Raises:
          UserError: as `export_model`.
        """
        from bert_flow_tf.serving.export import export_model

        return export_model(self, out_dir, format=format, **options)


def _arrays(variables: Mapping[str, tf.Variable]) -> Iterator[tuple[str, np.ndarray]]:
    """Names and values, in the names' order."""
    return ((name, variables[name].numpy()) for name in sorted(variables))


def _check_dtype(dtype: str) -> None:
    # A library's number type may equal its name, but cannot be written as JSON.
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ArgumentError(f"dtype: found {dtype!r}, expected {' or '.join(map(repr, DTYPES))}")
