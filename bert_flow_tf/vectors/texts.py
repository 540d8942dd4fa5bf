"""Check texts, a block at a time."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Set

from bert_flow_tf.common.errors import UserError

# Streams are read in parts of this many sentences; each part is sorted by length.
BLOCK_ROWS = 16384


def sentence_list(sentences: Iterable[str], name: str = "sentences") -> list[str]:
    """Return an iterable's strings; raise `UserError` for other values."""
    return [sentence for part in parts(sentences, name) for sentence in part]


def known_texts(
    texts: Iterable[str], only_unknown: Callable[[list[str]], Iterable[bool]]
) -> list[str]:
    """Return the different texts with a word that the encoder knows.

    The others have no direction of their own: their embeddings are all alike.

    Args:
      only_unknown: the model's function that tells texts of unknown word pieces.
    """
    different = [text for text in dict.fromkeys(sentence_list(texts)) if text.strip()]
    found = zip(different, only_unknown(different), strict=True)
    return [text for text, is_unknown in found if not is_unknown]


def parts(sentences: Iterable[str], name: str = "sentences") -> Iterator[list[str]]:
    """Yield lists of up to `BLOCK_ROWS` strings; raise `UserError` for other values."""
    if hasattr(sentences, "columns"):
        column = str(next(iter(sentences)))
        raise UserError(
            f"{name}: found a table, expected one of its columns, such as df[{column!r}]"
        )
    if isinstance(sentences, str | bytes | dict | Set) or not isinstance(sentences, Iterable):
        found = f"{type(sentences).__name__} {sentences!r:.60}"
        raise UserError(
            f"{name}: found {found}, expected strings in a list or another ordered iterable"
        )
    numbered = enumerate(sentences)
    while part := list(itertools.islice(numbered, BLOCK_ROWS)):
        for i, sentence in part:
            if not isinstance(sentence, str):
                raise UserError(
                    f"{name}[{i}]: found {type(sentence).__name__} {sentence!r:.60}, expected a "
                    "string"
                )
        block = [sentence for _, sentence in part]
        try:
            "".join(block).encode()
        except UnicodeEncodeError:
            i, sentence = next(one for one in part if re.search("[\ud800-\udfff]", one[1]))
            raise UserError(
                f"{name}[{i}]: found {sentence!a:.60}, a text that is no Unicode, expected text"
            ) from None
        yield block
