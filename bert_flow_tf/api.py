"""BertFlow: sentence embeddings from Python, of a trained run or with a flow learned on one's own sentences."""

import numpy as np
import tensorflow as tf
import tf_keras
from tqdm import tqdm

from bert_flow_tf import experiment, input_pipeline
from bert_flow_tf.convert.from_run import run_checkpoint
from bert_flow_tf.encoder import recorded_encoder, resolve_encoder
from bert_flow_tf.errors import UserError
from bert_flow_tf.model import SiameseBertFlow, reduce_dimension
from glow.optimizer import AdamWeightDecay
from bert_flow_tf.run_model import build_model, flow_config, restore
from bert_flow_tf.tokenizer import Tokenizer
from glow.flow import Glow

_TOKENS = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), tf.TensorSpec([None, None], tf.int32))


class BertFlow:
    """Sentences to embeddings: tokenizer, encoder, and, if there is one, the flow.

        model = BertFlow.from_hub("demo", sentence_embedding_type="avg-last-2")
        model.fit(sentences)                      # the flow, on a list of your own sentences; no labels
        embeddings = model.encode(sentences)      # float32 [n, D]
        model.similarity(embeddings, embeddings)  # cosines [n, n]
        model.export("exported")                  # exported/1/saved_model.pb, for TensorFlow Serving

    A run of `run_siamese` is loaded by `BertFlow.load(run_dir)`.

    Args:
      model: `SiameseBertFlow` with an encoder.
      source: `EncoderSource` of that encoder.
      sentence_embedding_type: name of its pooling.
      max_seq_length: word pieces that a sentence is cut to, [CLS] and [SEP] included.

    Attributes:
      embedding_size: length of an embedding, as `encode` gives it.
      encoder, flow: `SentenceEncoder`, and `glow.flow.Glow` or None.
      tokenizer: `Tokenizer`.
    """

    def __init__(self, model, source, *, sentence_embedding_type, max_seq_length):
        self.source = source
        self.sentence_embedding_type = sentence_embedding_type
        self.max_seq_length = max_seq_length
        self.tokenizer = Tokenizer.from_source(source)
        self.encoder = model.encoder
        self._use(model)

    def _use(self, model):
        self._model = model
        self.flow = model.flow
        self.low_dim = model.low_dim
        self.embedding_size = model.output_size
        self._embed = tf.function(self.embed_tokens, input_signature=[_TOKENS])
        self._likelihood = tf.function(
            lambda tokens: self.flow.bits_per_dim(self.encoder(tokens, training=False)), input_signature=[_TOKENS]
        )

    @classmethod
    def load(cls, run):
        """`BertFlow` of a finished run of `run_siamese`.

        Args:
          run: the run's directory, for its last checkpoint, or the prefix of one of its checkpoints.

        Raises:
          UserError: it is no run, its training has not finished, or its encoder cannot be found.
        """
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
        return cls(
            model,
            source,
            sentence_embedding_type=config["sentence_embedding_type"],
            max_seq_length=config["max_seq_length"],
        )

    @classmethod
    def from_hub(cls, bert_hub, *, sentence_embedding_type="avg", max_seq_length=64, preprocess_hub=None, low_dim=-1):
        """`BertFlow` of an encoder as it is, without a flow; `fit` learns one.

        Args:
          bert_hub: `demo`, `base`, `large`, a TF-Hub handle or a folder, see `encoder.resolve_encoder`.
          sentence_embedding_type: see `pooling.pooling`.
          max_seq_length: word pieces that a sentence is cut to, [CLS] and [SEP] included.
          preprocess_hub: the preprocess model, where `bert_hub` does not tell.
          low_dim: see `model.reduce_dimension`.

        Raises:
          UserError: the encoder cannot be reached, or does not fit the other arguments.
        """
        source = resolve_encoder(bert_hub=bert_hub, preprocess_hub=preprocess_hub)
        config = {
            "sentence_embedding_type": sentence_embedding_type,
            "max_seq_length": max_seq_length,
            "low_dim": low_dim,
            "flow": False,
            "num_labels": None,
        }
        model = build_model(source, config)
        return cls(model, source, sentence_embedding_type=sentence_embedding_type, max_seq_length=max_seq_length)

    def embed_tokens(self, tokens):
        """Embeddings [n, embedding_size] of the dictionary of token tensors, int32 [n, t]: encoder, flow, `low_dim`."""
        u = self.encoder(tokens, training=False)
        return reduce_dimension(u if self.flow is None else self.flow.forward(u), self.low_dim)

    def encode(
        self, sentences, batch_size=32, show_progress_bar=None, convert_to_numpy=True, normalize_embeddings=False
    ):
        """Embeddings of the sentences, float32 [n, embedding_size]; [embedding_size] of a single string.

        The arguments are those of sentence-transformers. Sentences of like length share a batch, and one that recurs is
        computed once.

        Args:
          sentences: a string or a list of strings.
          batch_size: sentences a step.
          show_progress_bar: None shows it on a terminal only.
          convert_to_numpy: an array; else a `tf.Tensor`.
          normalize_embeddings: scale every embedding to norm 1.

        Raises:
          UserError: an element is no string.
        """
        single = isinstance(sentences, str)
        embeddings = self._for_each(
            self._embed, [sentences] if single else sentences, (self.embedding_size,), batch_size, show_progress_bar
        )
        if normalize_embeddings:
            embeddings = tf.nn.l2_normalize(embeddings, axis=-1).numpy()
        embeddings = embeddings[0] if single else embeddings
        return embeddings if convert_to_numpy else tf.constant(embeddings)

    def bits_per_dim(self, sentences, batch_size=32, show_progress_bar=None):
        """The flow's loss of each sentence, float32 [n]: -log2 of its embedding's density, per dimension.

        Raises:
          UserError: there is no flow, or an element is no string.
        """
        if self.flow is None:
            raise UserError("bits_per_dim: found a model without a flow, expected one (`fit` learns it)")
        return self._for_each(self._likelihood, sentences, (), batch_size, show_progress_bar)

    @staticmethod
    def similarity(a, b):
        """Cosines float32 [n, m] of the embeddings `a` [n, D] and `b` [m, D]."""
        a, b = (tf.nn.l2_normalize(tf.convert_to_tensor(x, tf.float32), axis=-1) for x in (a, b))
        return tf.matmul(a, b, transpose_b=True).numpy()

    def fit(
        self,
        sentences,
        *,
        flow_model_config="config_l3_d3_w32",
        epochs=1.0,
        batch_size=64,
        learning_rate=1e-3,
        seed=1234,
        verbose="auto",
    ):
        """The model itself, after learning a new flow on the sentences: no labels, the encoder stays as it is.

        This is `run_siamese --flow=1 --flow_loss=1 --num_examples=0` on a list of sentences. That one takes pairs and
        adds their losses; here a pair is two sentences that follow each other in a random order drawn from `seed` (of
        an odd number, the first is taken once more for the last pair). On an exception the model stays as it was.

        Args:
          sentences: list of strings.
          flow_model_config: name of a shipped configuration, or a JSON file.
          epochs: times that each sentence is seen, may be a fraction.
          batch_size: sentences a step, an even number; 64 are the 32 pairs of the original.
          learning_rate: constant, as in the original.
          seed: of the order of the sentences and of the flow's initial values.
          verbose: of Keras' `fit`.

        Raises:
          UserError: too few sentences for a step, an argument that does not fit, or a loss that is not finite.
        """
        if batch_size < 2 or batch_size % 2:
            raise UserError(f"batch_size: found {batch_size}, expected an even number of sentences")
        pieces = self._tokenize(sentences)
        order = np.random.default_rng([seed, 0]).permutation(len(sentences))
        order = np.append(order, order[: len(order) % 2])
        steps = int(len(order) / batch_size * epochs)
        if not steps or len(order) < batch_size:
            raise UserError(
                f"fit: found {len(sentences)} sentences and {epochs} epochs, expected at least the {batch_size} "
                "sentences of one step"
            )
        config = flow_config(flow_model_config)
        try:
            flow = Glow(config, self.encoder.embedding_size, seed=seed)
        except ValueError as error:
            raise UserError(f"flow_model_config: {error}") from error
        model = SiameseBertFlow(
            self.encoder,
            flow,
            embedding_size=self.encoder.embedding_size,
            low_dim=self.low_dim,
            num_examples=0,
            flow_loss=True,
            seed=seed,
        )
        model.compile(AdamWeightDecay(0.0, name="adam"), AdamWeightDecay(learning_rate, name="flow_adam"))
        u = input_pipeline.embed(self.encoder, self.tokenizer, pieces, self.max_seq_length)
        batches = input_pipeline.training_batches(
            input_pipeline.embedding_features(u[order]),
            np.zeros(len(order) // 2, np.float32),
            batch_size=batch_size // 2,
            seed=seed,
        )
        history = model.fit(
            batches, steps_per_epoch=steps, callbacks=[tf_keras.callbacks.TerminateOnNaN()], verbose=verbose
        )
        loss = history.history["loss"][-1]
        if not all(np.isfinite(value).all() for value in (loss, *(v.numpy() for v in flow.variables))):
            raise UserError(
                f"fit: found a loss of {loss} or weights that are not finite, expected a smaller learning rate"
            )
        self._use(model)
        return self

    def export(self, out_dir, **options):
        """Writes a SavedModel from text to embeddings for TensorFlow Serving; options as of `serving.export.export`."""
        from bert_flow_tf.serving.export import export

        return export(self, out_dir, **options)

    def _tokenize(self, sentences):
        sentences = list(sentences)
        for i, sentence in enumerate(sentences):
            if not isinstance(sentence, str):
                raise UserError(f"sentences[{i}]: found {type(sentence).__name__} {sentence!r}, expected a string")
        return input_pipeline.tokenize(self.tokenizer, sentences, self.max_seq_length)

    def _for_each(self, function, sentences, shape, batch_size, show_progress_bar):
        """Array [n, *shape] of `function` of each sentence's tokens, sentences of like length together."""
        pieces, rows = input_pipeline.distinct(self._tokenize(sentences))
        order = np.argsort(-pieces.row_lengths().numpy(), kind="stable")
        values = np.empty((len(order), *shape), np.float32)
        hidden = None if show_progress_bar is None else not show_progress_bar
        for start in tqdm(range(0, len(order), batch_size), desc="encode", unit="batch", disable=hidden):
            batch = order[start : start + batch_size]
            tokens = self.tokenizer.pack(tf.gather(pieces, batch), self.max_seq_length)
            values[batch] = function(tokens).numpy()
        return values[rows]
