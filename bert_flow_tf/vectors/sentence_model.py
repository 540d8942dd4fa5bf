"""The methods of a sentence embedding model that need only its `encode`."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.vectors.similarities import FUNCTIONS, embeddings_of, similarities
from glow.number_types import is_number, is_whole_number

Sentences = str | Iterable[str]
# The names of a document's prompt, the first that exists.
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


def check_choices(given: Mapping[str, tuple[Any, Collection[Any]]]) -> None:
    """Raise `ArgumentError` for the first argument without an expected value."""
    for name, (value, expected) in given.items():
        # 1.0 and True equal 1, but they are no numbers of channels.
        is_other = isinstance(value, bool) or (is_number(value) and not is_whole_number(value))
        if value not in expected or is_other:
            known = list(expected)
            listed = known if len(known) < 9 else [*known[:2], "…", known[-1]]
            raise ArgumentError(f"{name}: found {value!r}, expected {', '.join(map(str, listed))}")


class SentenceModel:
    """Prompts and similarities, named as in sentence-transformers.

    A subclass defines `encode`, with that library's arguments.

    Attributes:
      default_prompt_name: the name of the prompt that `encode` puts before a sentence, or None.
    """

    default_prompt_name: str | None
    encode: Callable[..., Any]

    @property
    def cuts_after_norm(self) -> bool:
        """True if `truncate_dim` cuts channels that an encoder scaled to norm 1."""
        return False

    @property
    def embedding_size(self) -> int:
        """The width of the embeddings."""
        raise NotImplementedError

    def get_embedding_dimension(self) -> int:
        return self.embedding_size

    get_sentence_embedding_dimension = get_embedding_dimension

    def encode_query(self, sentences: Sentences, **options: Any) -> Any:
        """Call `encode` with the prompt named "query", if there is one."""
        return self._encode_with(("query",), sentences, options)

    def encode_document(self, sentences: Sentences, **options: Any) -> Any:
        """Call `encode` with the prompt named "document", "passage" or "corpus", if any."""
        return self._encode_with(_DOCUMENT_PROMPTS, sentences, options)

    def _encode_with(
        self, names: Sequence[str], sentences: Sentences, options: dict[str, Any]
    ) -> Any:
        if options.get("prompt_name") is None and options.get("prompt") is None:
            options["prompt"] = next(
                (self.prompts[name] for name in names if name in self.prompts), ""
            )
        return self.encode(sentences, **options)

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

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts by name, for `encode`'s `prompt_name`."""
        return self._prompts

    @prompts.setter
    def prompts(self, prompts: dict[str, str]) -> None:
        if not all(isinstance(one, str) for pair in prompts.items() for one in pair):
            raise ArgumentError(f"prompts: found {prompts}, expected a dict of texts by name")
        self._prompts = dict(prompts)

    @property
    def similarity_fn_name(self) -> str:
        """The similarity function: "cosine", "dot", "euclidean" or "manhattan"."""
        return self._similarity_fn_name

    @similarity_fn_name.setter
    def similarity_fn_name(self, name: str) -> None:
        if name not in FUNCTIONS:
            raise ArgumentError(
                f"similarity_fn_name: found {name!r}, expected {', '.join(FUNCTIONS)}"
            )
        self._similarity_fn_name = name

    def _prompt(self, name: str | None = None) -> str:
        """Return the prompt of a name, by default of `default_prompt_name`."""
        return self.prompts.get(name or self.default_prompt_name or "", "")

    @property
    def default_prompt(self) -> str:
        """The text that `encode` puts before a sentence, perhaps empty."""
        return self._prompt()

    @property
    def document_prompt(self) -> str:
        """The text that `encode_document` puts before a sentence, perhaps empty."""
        found = (self.prompts[name] for name in _DOCUMENT_PROMPTS if name in self.prompts)
        return next(found, "")
