"""The interface of a sentence embedding model: encoder, maps, tail."""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.vectors.quantization import ENCODE_PRECISIONS, quantized
from bert_flow_tf.vectors.similarities import FUNCTIONS, embeddings_of, similarities
from bert_flow_tf.vectors.tail import Tail
from bert_flow_tf.vectors.text_step import TextStep
from bert_flow_tf.vectors.texts import known_texts, parts, sentence_list
from bert_flow_tf.vectors.thresholds import Threshold, check_enough, sampled, threshold

Sentences = str | Iterable[str]
QUERY_PROMPTS = ("query",)
# The names of a document's prompt, the first that exists.
DOCUMENT_PROMPTS = ("document", "passage", "corpus")
# sentence-transformers knows these names of a default prompt without a text.
_USUAL_PROMPTS = ("query", "document")


def check_choices(given: Mapping[str, tuple[Any, Collection[Any]]]) -> None:
    """Raise `ArgumentError` for the first argument without an expected value."""
    for name, (value, expected) in given.items():
        if value not in expected:
            known = list(expected)
            listed = known if len(known) < 9 else [*known[:2], "…", known[-1]]
            raise ArgumentError(f"{name}: found {value!r}, expected {', '.join(map(str, listed))}")


def first_prompt(prompts: Mapping[str, str], names: Sequence[str]) -> str:
    """Return the first prompt that exists; "" without one."""
    return next((prompts[name] for name in names if name in prompts), "")


class NoMaps:
    """No maps, or those that an encoder includes."""

    maps: Sequence[Any] = ()
    identities: Sequence[dict[str, Any]] = ()

    def transform(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows."""
        return rows


class SentenceModel(TextStep):
    """A sentence embedding model of encoder, maps and tail.

    Every embedding is `tail(chain.transform(encode_pooled(texts)))`. Options of what goes in (a
    prompt, the batch size, a bar) belong to `encode_pooled`, options of what comes out (norm,
    truncation, precision, tensors) to the tail and what follows it. Names and arguments are those
    of sentence-transformers.

    A subclass sets the attributes.

    Attributes:
      encoder: with a `recipe`, with `encode` for `encode_pooled`, and perhaps `tokenize`.
      chain: with `transform` and `identities`, see `glow.chain.Chain`.
      tail: see `vectors.tail.Tail`.
    """

    encoder: Any
    chain: Any = NoMaps()
    tail: Tail
    _prompts: dict[str, str]
    _default_prompt_name: str | None = None
    _similarity_fn_name = "cosine"

    def encode(
        self,
        sentences: Sentences,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        output_value: str = "sentence_embedding",
        precision: str = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: Any = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
    ) -> Any:
        """Return embeddings, float32 [n, embedding_size], or [embedding_size] for one string.

        The arguments and their order are those of sentence-transformers; see
        docs/sentence_transformers.md.

        Args:
          prompt: text to put before each sentence.
          prompt_name: a key of `prompts`, instead of `prompt`.
          batch_size: sentences per step; None for the fastest.
          show_progress_bar: None shows it on a terminal only.
          precision: "int8", "uint8", "binary" or "ubinary", see
            `vectors.quantization.quantized`.
          convert_to_numpy: True returns an array, False a list of one `tf.Tensor` per sentence.
          convert_to_tensor: True returns one `tf.Tensor`, whatever `convert_to_numpy` is.
          output_value: only the default is supported.
          device: only the default is supported, but by an encoder of another library.
          normalize_embeddings: True scales embeddings to norm 1; False leaves the encoder's own
            setting, `normalizes`.
          truncate_dim: number of leading channels to keep, of an encoder's normalized embeddings,
            too; None for the model's own `truncate_dim`.

        Raises:
          UserError: an element is not a string, or an argument is invalid.
        """
        check_choices(
            {
                "output_value": (output_value, ("sentence_embedding",)),
                "precision": (precision, ENCODE_PRECISIONS),
            }
        )
        if truncate_dim is not None:
            self.tail.check(truncate_dim)
        is_array = convert_to_numpy and not convert_to_tensor
        if not is_array:
            self.check_tensors(convert_to_numpy, convert_to_tensor)
        pooled = self.encode_pooled(
            [sentences] if isinstance(sentences, str) else sentences,
            prompt=self.prompt_of(prompt_name) if prompt is None else prompt,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            device=device,
        )
        z = self.chain.transform(pooled)
        found = self.tail(z, normalize_embeddings or None, truncate_dim)
        if precision != ENCODE_PRECISIONS[0]:
            found = quantized(found, precision)
        if isinstance(sentences, str):
            found = found[0]
        return found if is_array else _tensors(found, as_one=convert_to_tensor)

    def encode_pooled(
        self,
        sentences: Sentences,
        *,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        device: Any = None,
        label: str = "encode",
    ) -> np.ndarray:
        """Return the encoder's vectors, float32 [n, D], or [D] for one string.

        Unlike those of `encode` without a map, they are not scaled by an encoder's `Normalize`.

        Args:
          prompt: text to put before each sentence; None for the default prompt.
          label: name of the progress bar.

        Raises:
          UserError: an element is not a string, or an argument is invalid.
        """
        check_choices({"device": (device, (None,))})
        text = self.prompt_of() if prompt is None else prompt
        texts = sentence_list([sentences] if isinstance(sentences, str) else sentences)
        found = self.encoder.encode(
            [text + one for one in texts] if text else texts,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            label=label,
        )
        return found[0] if isinstance(sentences, str) else found

    def encode_blocks(
        self,
        sentences: Iterable[str],
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool | None = None,
        prompt: str | None = None,
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yield lists of sentences and their embeddings, float32 [k, embedding_size].

        Memory holds one list at a time. Where `normalize_embeddings` or `prompt` is None, the
        encoder's own setting holds; False leaves the norms as they are. Raises `UserError` as
        `encode` does.
        """
        for part in parts(sentences):
            pooled = self.encode_pooled(
                part, prompt=prompt, batch_size=batch_size, show_progress_bar=show_progress_bar
            )
            yield part, self.tail(self.chain.transform(pooled), normalize_embeddings)

    def check_tensors(self, convert_to_numpy: bool, convert_to_tensor: bool) -> None:
        """Raise `ArgumentError` for a model that makes no tensors."""

    @property
    def model_record(self) -> Any:
        """The `common.records.ModelRecord`, for results."""
        raise NotImplementedError

    def reduce(self, z: np.ndarray) -> np.ndarray:
        """Average and truncate the channels of [n, D], as the tail does."""
        return self.tail(z, normalize=False)

    def after_flow(self, u: np.ndarray) -> np.ndarray:
        """Map and reduce `encode_pooled`'s [n, D]; return [n, embedding_size]."""
        return self.reduce(self.chain.transform(u))

    def encode_query(self, sentences: Sentences, **options: Any) -> Any:
        """Call `encode` with the prompt named "query", if there is one."""
        return self._encode_with(first_prompt(self.prompts, QUERY_PROMPTS), sentences, options)

    def encode_document(self, sentences: Sentences, **options: Any) -> Any:
        """Call `encode` with the prompt named "document", "passage" or "corpus", if any."""
        return self._encode_with(self.document_prompt, sentences, options)

    def _encode_with(self, prompt: str, sentences: Sentences, options: dict[str, Any]) -> Any:
        if options.get("prompt_name") is None and options.get("prompt") is None:
            options["prompt"] = prompt
        return self.encode(sentences, **options)

    def embed_documents(self, texts: Iterable[str]) -> list[list[float]]:
        """Return the lists of numbers that LangChain and others ask for."""
        return self.encode_document(list(texts)).tolist()

    def embed_query(self, text: str) -> list[float]:
        """Return a query's embedding as a list of numbers."""
        return self.encode_query(text).tolist()

    async def aembed_documents(self, texts: Iterable[str]) -> list[list[float]]:
        """Return `embed_documents`, computed in a thread."""
        # Importing asyncio takes a tenth of a program's start, and a service has it.
        import asyncio

        return await asyncio.to_thread(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> list[float]:
        """Return `embed_query`, computed in a thread."""
        import asyncio

        return await asyncio.to_thread(self.embed_query, text)

    def tokenize(self, sentences: Sequence[str]) -> Any:
        """Return the encoder's tokens; raise `UserError` for an encoder without tokens."""
        if not hasattr(self.encoder, "tokenize"):
            raise UserError("tokenize: found an encoder without tokens, expected a transformer")
        return self.encoder.tokenize(sentences)

    def only_unknown(self, texts: Sequence[str]) -> np.ndarray:
        """Return True for each text [n] of unknown word pieces alone."""
        if not hasattr(self.encoder, "only_unknown"):
            return np.zeros(len(texts), bool)
        return self.encoder.only_unknown(texts)

    def threshold(self, sentences: Iterable[str], false_matches: float = 1e-3) -> Threshold:
        """Return the cosine that few random pairs exceed, see `vectors.thresholds`.

        Texts without a word that the encoder knows are left out.
        """
        texts = known_texts(sentences, self.only_unknown)
        check_enough(len(texts), false_matches)
        return threshold(self.encode(sampled(texts)), false_matches)

    def similarity(self, a: Any, b: Any) -> np.ndarray:
        """Return the cosines, float32 [n, m], of sentences or embeddings.

        `similarity_fn_name` selects another function. Raises `UserError` if the widths differ.
        """
        return similarities(self.similarity_fn_name, *self._embed_both(a, b))

    def similarity_pairwise(self, a: Any, b: Any) -> np.ndarray:
        """Return the similarity of each pair of rows, float32 [n]."""
        a, b = self._embed_both(a, b)
        if len(a) != len(b):
            raise UserError(
                f"similarity_pairwise: found {len(a)} and {len(b)} rows, expected the same number"
            )
        return FUNCTIONS[self.similarity_fn_name](a, b)

    def _embed_both(self, a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
        a = embeddings_of(a, "a", self.encode)
        b = embeddings_of(b, "b", self.encode)
        if a.shape[1] != b.shape[1]:
            raise UserError(
                f"similarity: found {a.shape[1]} and {b.shape[1]} channels, expected the same "
                "number"
            )
        return a, b

    def recipe(
        self, *, prompt: str | None = None, normalize: bool | None = None
    ) -> list[dict[str, Any]]:
        """Return the recipes of all that embeddings depend on, as JSON values.

        Args:
          prompt: the text before each sentence; None for the default prompt.
          normalize: as in `encode_blocks`.

        Raises:
          UserError: a stage cannot be identified, such as a function or a transformer of another
            library that is no affine map.
        """
        try:
            return [
                self.encoder.recipe,
                *self.prompt_recipe(prompt),
                *self.chain.identities,
                self.tail.recipe(normalize),
            ]
        except ValueError as error:
            raise UserError(f"fingerprint: {error}") from error

    def prompt_recipe(self, prompt: str | None) -> list[dict[str, Any]]:
        """Return the recipe of a prompt, by default of the default prompt."""
        text = self.default_prompt if prompt is None else prompt
        return [{"kind": "prompt", "text": text}] if text else []

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the `recipe`; other embeddings have another one."""
        return self.fingerprint_of()

    def fingerprint_of(self, *, prompt: str | None = None, normalize: bool | None = None) -> str:
        """Return the SHA-256 of `recipe(prompt=prompt, normalize=normalize)`."""
        return digest_of(self.recipe(prompt=prompt, normalize=normalize))

    @property
    def embedding_size(self) -> int:
        """The width of the embeddings."""
        return self.tail.size

    def get_embedding_dimension(self) -> int:
        return self.embedding_size

    get_sentence_embedding_dimension = get_embedding_dimension

    @property
    def max_seq_length(self) -> int:
        """The most word pieces per sentence; longer sentences are cut. Settable.

        An encoder without tokens has none.
        """
        return self.encoder.max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self.encoder.max_seq_length = value

    def get_max_seq_length(self) -> int:
        return self.max_seq_length

    @property
    def truncate_dim(self) -> int | None:
        """The number of leading channels to keep; None keeps all. Settable.

        Every way to an embedding applies it; `encode`'s argument takes precedence.
        """
        return self.tail.truncate_dim

    @truncate_dim.setter
    def truncate_dim(self, value: int | None) -> None:
        self.tail = self.tail.with_size(value)
        self.warn_of_truncation(value)

    def warn_of_truncation(self, size: int | None) -> None:
        """Warn if the leading channels tell no more than others."""

    @property
    def normalizes(self) -> bool:
        """True if embeddings have norm 1, unless a caller says otherwise."""
        return self.tail.has_norm_1

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts by name, for `encode`'s `prompt_name`."""
        return self._prompts

    @prompts.setter
    def prompts(self, prompts: dict[str, str]) -> None:
        self.set_prompts(prompts, self.default_prompt_name)

    @property
    def default_prompt_name(self) -> str | None:
        """The name of the prompt that `encode` uses, or None. Settable."""
        return self._default_prompt_name

    @default_prompt_name.setter
    def default_prompt_name(self, name: str | None) -> None:
        self.set_prompts(self.prompts, name)

    def set_prompts(self, prompts: dict[str, str], default: str | None) -> None:
        """Set prompts and the name of the default one.

        Raises `ArgumentError` for other values than texts by name, or a name without a prompt,
        unless it is "query" or "document", which then mean no text.
        """
        are_texts = isinstance(prompts, Mapping) and all(
            isinstance(one, str) for pair in prompts.items() for one in pair
        )
        if not are_texts:
            raise ArgumentError(f"prompts: found {prompts}, expected a dict of texts by name")
        if default not in (None, *prompts, *_USUAL_PROMPTS):
            known = ", ".join(dict.fromkeys((*prompts, *_USUAL_PROMPTS)))
            raise ArgumentError(
                f"default_prompt_name: found {default!r}, expected None or one of the prompts: "
                f"{known}"
            )
        self._prompts = dict(prompts)
        self._default_prompt_name = default

    @property
    def similarity_fn_name(self) -> str:
        """The similarity function: "cosine", "dot", "euclidean" or "manhattan"."""
        return self._similarity_fn_name

    @similarity_fn_name.setter
    def similarity_fn_name(self, name: str) -> None:
        check_choices({"similarity_fn_name": (name, tuple(FUNCTIONS))})
        self._similarity_fn_name = name

    def prompt_of(self, name: str | None = None) -> Any:
        """Return the prompt of a name, by default of `default_prompt_name`."""
        if name is None:
            return self._prompts.get(self._default_prompt_name or "", "")
        if name not in self._prompts:
            known = ", ".join(self._prompts) or "none"
            raise ArgumentError(f"prompt_name: found {name!r}, expected None or one of {known}")
        return self._prompts[name]

    @property
    def default_prompt(self) -> str:
        """The text that `encode` puts before a sentence, perhaps empty."""
        return self.prompt_of()

    @property
    def document_prompt(self) -> str:
        """The text that `encode_document` puts before a sentence, perhaps empty."""
        return first_prompt(self.prompts, DOCUMENT_PROMPTS)


def digest_of(recipe: Sequence[Mapping[str, Any]]) -> str:
    """Return the SHA-256 of a list of recipes."""
    text = json.dumps(list(recipe), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _tensors(found: np.ndarray, *, as_one: bool) -> Any:
    """Return one `tf.Tensor`, or one for each row."""
    # Only whoever asks for tensors has TensorFlow.
    import tensorflow as tf

    if as_one or found.ndim == 1:
        return tf.constant(found)
    return [tf.constant(one) for one in found]
