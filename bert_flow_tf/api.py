"""BertFlow: sentence embeddings from Python, of a trained run or with a flow learned on one's own sentences."""

import collections.abc
import pathlib

import numpy as np
import tensorflow as tf

from bert_flow_tf import experiment, saved_model
from bert_flow_tf.convert.from_run import run_checkpoint
from bert_flow_tf.devices import multiplies_bfloat16
from bert_flow_tf.encoder import recorded_encoder, resolve_encoder
from bert_flow_tf.errors import UserError
from bert_flow_tf.flow_learning import learn_flow
from bert_flow_tf.model import SiameseBertFlow, reduce_dimension
from bert_flow_tf.run_model import build_model, flow_config, restore
from bert_flow_tf.sentence_stream import PerSentence, sentence_list
from bert_flow_tf.serving import DTYPES
from bert_flow_tf.tokenizer import TOKEN_SPECS, Tokenizer
from glow.folded import FoldedFlow, can_fold

_OUTPUT_VALUES = ("sentence_embedding", "token_embeddings")


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
      model: `SiameseBertFlow` with an encoder.
      source: `EncoderSource` of that encoder.
      sentence_embedding_type: name of its pooling.
      max_seq_length: word pieces that a sentence is cut to, [CLS] and [SEP] included.
      encoder_trained: whether the encoder has other weights than `source`.
      learned_on: dict that says what the flow was learned on, for the model card; None for nothing.
      dtype: "float32", or "bfloat16" for the encoder's matrices, and their products where the machine has units for
        these: a GPU of compute capability 8.0 or more, or a CPU with AVX-512 BF16, AMX or Arm's BF16. Elsewhere the
        arithmetic stays float32. The rounded matrices are a copy; `save` and `export` write the float32 ones.

    Attributes:
      embedding_size: length of an embedding, as `encode` gives it.
      pooled: callable from token tensors to embeddings before the flow, in `dtype`.
      encoder, flow: `SentenceEncoder`, float32, and `glow.flow.Glow` or None.
      tokenizer: `Tokenizer`.
    """

    def __init__(
        self,
        model,
        source,
        *,
        sentence_embedding_type,
        max_seq_length,
        encoder_trained=False,
        learned_on=None,
        dtype=DTYPES[0],
    ):
        _check_dtype(dtype)
        self.source = source
        self.sentence_embedding_type = sentence_embedding_type
        self.max_seq_length = max_seq_length
        self.encoder_trained = encoder_trained
        self.tokenizer = Tokenizer.from_source(source)
        self.encoder = model.encoder
        self.dtype = dtype
        self.pooled = self.encoder
        if dtype == "bfloat16":
            self.pooled = self.encoder.rounded_to_bfloat16(multiplies_bfloat16())
        self._use(model, learned_on)

    def _use(self, model, learned_on):
        self.flow = model.flow
        self.low_dim = model.low_dim
        self.embedding_size = model.output_size
        self.learned_on = learned_on
        self._fold()
        self._token_states = self._per_sentence(self.pooled.token_states, ())
        self._log_prob = self._per_sentence(lambda tokens: self.flow.log_prob(self.pooled(tokens, training=False)), ())

    def _fold(self):
        """Makes what `encode` computes anew from the flow as it is now."""
        foldable = self.flow is not None and can_fold(self.flow)
        folded = FoldedFlow(self.flow) if foldable else None
        self._embeddings = self._per_sentence(lambda tokens: self.embed_tokens(tokens, folded), (self.embedding_size,))
        # Last: another thread that finds it current finds the embeddings that go with it.
        self._folded = folded

    def _current_embeddings(self):
        """`PerSentence` of `encode`: a flow whose variables were changed since is folded again."""
        if self._folded is not None and not self._folded.is_current():
            self._fold()
        return self._embeddings

    def _per_sentence(self, function, shape):
        function = tf.function(function, input_signature=[TOKEN_SPECS], autograph=False)
        return PerSentence(function, self.tokenizer, shape=shape, max_seq_length=self.max_seq_length)

    @classmethod
    def from_hub(
        cls,
        bert_hub,
        *,
        pooling="avg",
        max_seq_length=64,
        preprocess_hub=None,
        low_dim=-1,
        sentence_embedding_type=None,
        dtype=DTYPES[0],
    ):
        """`BertFlow` of an encoder as it is, without a flow; `fit` learns one.

        Args:
          bert_hub: `demo`, `base`, `large`, a TF-Hub handle or a folder, see `encoder.resolve_encoder`.
          pooling: how word pieces become one vector: `avg`, `cls`, `avg-last-2`, …, see `pooling.pooling`.
          max_seq_length: word pieces that a sentence is cut to, [CLS] and [SEP] included.
          preprocess_hub: the preprocess model, where `bert_hub` does not tell.
          low_dim: see `model.reduce_dimension`.
          sentence_embedding_type: `pooling` by the original's name for it, which is taken where it is given.
          dtype: "float32" or "bfloat16", see the class.

        Raises:
          UserError: the encoder cannot be reached, or does not fit the other arguments.
        """
        _check_dtype(dtype)
        source = resolve_encoder(bert_hub=bert_hub, preprocess_hub=preprocess_hub)
        config = {
            "sentence_embedding_type": sentence_embedding_type or pooling,
            "max_seq_length": max_seq_length,
            "low_dim": low_dim,
            "flow": False,
            "num_labels": None,
        }
        return cls._built(source, config, build_model(source, config), dtype=dtype)

    @classmethod
    def demo(cls, **options):
        """`BertFlow` of the demo encoder, all-MiniLM-L6-v2, downloaded once; options as of `from_hub`."""
        return cls.from_hub("demo", **options)

    @classmethod
    def from_pretrained(cls, path, *, dtype=DTYPES[0]):
        """`BertFlow` of a folder that `save` wrote, or of a finished run of `run_siamese` (see `load`).

        Args:
          path: the folder; of a run, the prefix of one of its checkpoints too.
          dtype: "float32" or "bfloat16", see the class.

        Raises:
          UserError: it is neither, of another format version, or a file of it is missing or altered; the line names it.
        """
        _check_dtype(dtype)
        path = pathlib.Path(path)
        if not saved_model.is_saved_model(path):
            if path.is_dir() and not (path / experiment.CONFIG_FILE).is_file():
                raise UserError(
                    f"{path}: holds neither {saved_model.CONFIG_FILE} nor {experiment.CONFIG_FILE}, expected a folder "
                    "that `save` wrote, or a run's"
                )
            return cls.load(path, dtype=dtype)
        config, arrays = saved_model.read(path)
        # Absolute, since a folder may be called `demo` or `base`.
        source = resolve_encoder(bert_hub=str(path.resolve()))
        saved_model.check_encoder(config, source, path)
        model = build_model(source, config | {"flow": arrays is not None, "num_labels": None})
        if arrays is not None:
            saved_model.assign_flow(model.flow, arrays, path / saved_model.FLOW_FILE)
        return cls._built(source, config, model, learned_on=config["learned_on"], dtype=dtype)

    @classmethod
    def load(cls, run, *, dtype=DTYPES[0]):
        """`BertFlow` of a finished run of `run_siamese`; a folder that `save` wrote is taken, too.

        Args:
          run: the run's directory, for its last checkpoint, or the prefix of one of its checkpoints.
          dtype: "float32" or "bfloat16", see the class.

        Raises:
          UserError: it is no run, its training has not finished, or its encoder cannot be found.
        """
        _check_dtype(dtype)
        if saved_model.is_saved_model(run):
            return cls.from_pretrained(run, dtype=dtype)
        checkpoint = run_checkpoint(run)
        config = experiment.read_config(checkpoint.parent)
        if not (checkpoint.parent / experiment.TRAIN_RESULTS_FILE).is_file():
            raise UserError(
                f"{checkpoint.parent}: found a run whose training has not finished, expected a finished one "
                "(the command that began it goes on with it)"
            )
        source = recorded_encoder(config)
        model = build_model(source, config)
        restore(model, checkpoint, with_encoder=config["encoder_trained"])
        learned_on = {"task": config.get("task_name"), "checkpoint": checkpoint.name}
        options = {"encoder_trained": config["encoder_trained"], "learned_on": learned_on, "dtype": dtype}
        return cls._built(source, config, model, **options)

    @classmethod
    def _built(cls, source, config, model, **options):
        names = ("sentence_embedding_type", "max_seq_length")
        return cls(model, source, **{name: config[name] for name in names}, **options)

    def embed_tokens(self, tokens, latents=None):
        """Embeddings [n, embedding_size] of the dictionary of token tensors, int32 [n, t]: encoder, flow, `low_dim`.

        Args:
          tokens: that dictionary.
          latents: what computes the flow, from u [n, D] to z [n, D]; None for `flow.forward`.
        """
        z = self.pooled(tokens, training=False)
        if self.flow is not None:
            z = (latents or self.flow.forward)(z)
        return reduce_dimension(z, self.low_dim)

    def embed(self, sentences):
        """Embeddings, float32 [n, embedding_size], of a string tensor [n], in a graph: a `tf.data` map function.

        dataset = tf.data.TextLineDataset("sentences.txt").batch(64).map(model.embed)
        """
        embeddings = self.embed_tokens(self.tokenizer(sentences, self.max_seq_length))
        return tf.ensure_shape(embeddings, [None, self.embedding_size])

    def encode(
        self,
        sentences,
        batch_size=None,
        show_progress_bar=None,
        output_value="sentence_embedding",
        convert_to_numpy=True,
        convert_to_tensor=False,
        normalize_embeddings=False,
    ):
        """Embeddings of the sentences, float32 [n, embedding_size]; [embedding_size] of a single string.

        The arguments are those of sentence-transformers.

        Args:
          sentences: a string, or an iterable of strings.
          batch_size: sentences a step; None takes as many as have 2,048 word pieces, which CPUs run fastest.
          show_progress_bar: None shows it on a terminal only.
          output_value: "sentence_embedding"; or "token_embeddings" for a list of arrays float32 [t_i, hidden_size], one
            a sentence: the encoder's last layer at each word piece, [CLS] and [SEP] included, before pooling and flow.
          convert_to_numpy: arrays; else a list of one `tf.Tensor` a sentence.
          convert_to_tensor: one `tf.Tensor`, or a list of them for token embeddings; goes before `convert_to_numpy`.
          normalize_embeddings: scale every embedding to norm 1.

        Raises:
          UserError: an element is no string, or an argument does not fit.
        """
        if output_value not in _OUTPUT_VALUES:
            raise UserError(f"output_value: found {output_value!r}, expected {' or '.join(map(repr, _OUTPUT_VALUES))}")
        single = isinstance(sentences, str)
        sentences = [sentences] if single else sentences
        options = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
        as_tensors = convert_to_tensor or not convert_to_numpy
        if output_value == "token_embeddings":
            if normalize_embeddings:
                raise UserError("normalize_embeddings: found True with token embeddings, expected sentence embeddings")
            found = self._token_states.token_values(sentences, **options)
            found = [tf.constant(states) for states in found] if as_tensors else found
            return found[0] if single else found
        embeddings = self._current_embeddings().all(sentences, **options)
        if normalize_embeddings:
            embeddings = tf.nn.l2_normalize(embeddings, axis=-1).numpy()
        if single:
            return tf.constant(embeddings[0]) if as_tensors else embeddings[0]
        if convert_to_tensor:
            return tf.constant(embeddings)
        return embeddings if convert_to_numpy else [tf.constant(embedding) for embedding in embeddings]

    def encode_parts(self, sentences, batch_size=None, show_progress_bar=None, normalize_embeddings=False):
        """Yields pairs of a list of sentences and their embeddings, float32 [k, embedding_size], in order.

        For streams whose embeddings do not fit into memory: nothing is kept from one part to the next.

        Raises:
          UserError: as `encode`.
        """
        options = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
        for part, embeddings in self._current_embeddings().in_parts(sentences, **options):
            yield part, tf.nn.l2_normalize(embeddings, axis=-1).numpy() if normalize_embeddings else embeddings

    def log_prob(self, sentences, batch_size=None, show_progress_bar=None):
        """The log-density of each sentence's embedding before the flow, float32 [n], in nats; a number of a string.

        Raises:
          UserError: there is no flow, or an element is no string.
        """
        self._expect_flow("log_prob")
        single = isinstance(sentences, str)
        sentences = [sentences] if single else sentences
        found = self._log_prob.all(sentences, batch_size=batch_size, show_progress_bar=show_progress_bar)
        return found[0] if single else found

    def bits_per_dim(self, sentences, batch_size=None, show_progress_bar=None):
        """The flow's loss of each sentence, float32 [n]: -log2 of its embedding's density, per dimension.

        Raises:
          UserError: there is no flow, or an element is no string.
        """
        self._expect_flow("bits_per_dim")
        return self.log_prob(sentences, batch_size, show_progress_bar) / (-self.flow.event_size * np.log(2.0))

    def inverse(self, z):
        """Embeddings before the flow, float32 [n, D] or [D], whose latents, `encode`'s embeddings, are `z`.

        Raises:
          UserError: there is no flow, `low_dim` averages its latents, or `z` has another width.
        """
        self._expect_flow("inverse")
        if self.low_dim > 0:
            raise UserError(f"inverse: found low_dim {self.low_dim}, which averages latents, expected none")
        z = np.asarray(z, np.float32)
        if z.ndim not in (1, 2) or z.shape[-1] != self.flow.event_size:
            raise UserError(f"inverse: found an array of shape {list(z.shape)}, expected [n, {self.flow.event_size}]")
        return self.flow.inverse(z).numpy()

    def sample(self, n, seed=0):
        """Embeddings before the flow, float32 [n, D], drawn from its density; the same for the same int `seed`.

        Raises:
          UserError: there is no flow.
        """
        self._expect_flow("sample")
        return self.flow.sample(n, seed).numpy()

    def _expect_flow(self, what):
        if self.flow is None:
            raise UserError(f"{what}: found a model without a flow, expected one (`fit` learns it)")

    def similarity(self, a, b):
        """Cosines float32 [n, m] of `a` and `b`, each embeddings [n, D] or [D], a string, or strings.

        Raises:
          UserError: they are neither, or their widths differ.
        """
        a, b = self._rows(a, "a"), self._rows(b, "b")
        if a.shape[1] != b.shape[1]:
            raise UserError(f"similarity: found embeddings of {a.shape[1]} and {b.shape[1]} channels, expected as many")
        a, b = (tf.nn.l2_normalize(x, axis=-1) for x in (a, b))
        return tf.matmul(a, b, transpose_b=True).numpy()

    def _rows(self, values, name):
        if isinstance(values, str):
            return self.encode([values])
        if getattr(values, "dtype", None) is not None and np.asarray(values).dtype.kind not in "fiub":
            values = np.asarray(values).tolist()
        if not hasattr(values, "dtype"):
            if isinstance(values, collections.abc.Iterator):
                values = list(values)
            if not isinstance(values, (list, tuple)) or any(isinstance(v, (str, bytes, type(None))) for v in values):
                return self.encode(sentence_list(values, name))
        try:
            rows = np.atleast_2d(np.asarray(values, np.float32))
        except (TypeError, ValueError):
            return self.encode(sentence_list(values, name))
        if rows.ndim != 2 or not rows.shape[1]:
            raise UserError(
                f"{name}: found an array of shape {list(np.shape(values))}, expected sentences or embeddings [n, D]"
            )
        return rows

    def fit(
        self,
        sentences,
        *,
        flow_model_config="config_l3_d3_w32",
        epochs=1.0,
        batch_size=64,
        learning_rate=1e-3,
        seed=1234,
        show_progress_bar=None,
    ):
        """The model itself, after learning a new flow on the sentences: no labels, the encoder stays as it is.

        `glow.FlowCalibrator` on the sentences' embeddings: what `run_siamese --flow=1 --flow_loss=1 --num_examples=0`
        learns from pairs, whose two losses it adds. On an exception the model stays as it was.

        Args:
          sentences: iterable of strings; each counts as often as it occurs.
          flow_model_config: name of a shipped configuration, or a JSON file.
          epochs: times that each sentence is seen, may be a fraction.
          batch_size: sentences a step; 64 are the 32 pairs of the original.
          learning_rate: constant, as in the original.
          seed: of the order of the sentences and of the flow's initial values.
          show_progress_bar: None shows it on a terminal only.

        Raises:
          UserError: too few sentences for a step, an argument that does not fit, or a loss that is not finite.
        """
        flow, learned_on = learn_flow(
            self,
            sentences,
            flow_config(flow_model_config),
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            seed=seed,
            show_progress_bar=show_progress_bar,
        )
        size = self.encoder.embedding_size
        self._use(SiameseBertFlow(self.encoder, flow, embedding_size=size, low_dim=self.low_dim), learned_on)
        return self

    def save(self, path, *, overwrite=False):
        """pathlib.Path of the folder written: the whole model, for `from_pretrained`; see `saved_model.save`."""
        return saved_model.save(self, path, overwrite=overwrite)

    def export(self, out_dir, **options):
        """Writes a SavedModel from text to embeddings for TensorFlow Serving; options as of `serving.export.export`."""
        from bert_flow_tf.serving.export import export

        return export(self, out_dir, **options)


def _check_dtype(dtype):
    # A number type of a library is equal to its name, but no JSON.
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise UserError(f"dtype: found {dtype!r}, expected {' or '.join(map(repr, DTYPES))}")
