"""The sentences that are measured on: the STS Benchmark's, all splits."""

import os
from typing import TYPE_CHECKING

from benchmarks.options import Options
from bert_flow_tf.data.tasks import read_train

if TYPE_CHECKING:
    from bert_flow_tf.encoder.tokenizer import Tokenizer

QUICK_PAIRS = 64


def all_sentences(options: Options) -> list[str]:
    """list of both sentences of every pair of STS-B's train, dev and test split, in their order, repeats included.

    Raises:
      UserError: `options.glue_dir` holds no STS-B.
    """
    examples = read_train("STS-B", os.path.join(options.glue_dir, "STS-B"), True)
    pairs = list(zip(examples.sentences_a, examples.sentences_b, strict=True))
    return [sentence for pair in pairs[: QUICK_PAIRS if options.quick else None] for sentence in pair]


def distinct_sentences(sentences: list[str], tokenizer: "Tokenizer", max_seq_length: int) -> list[str]:
    """list of the sentences without those that have the word pieces of one before: what `encode` computes of them."""
    from bert_flow_tf.encoder import stream

    pieces = stream.tokenize(tokenizer, sentences, max_seq_length).to_list()
    first = {}
    for row, sentence in zip(pieces, sentences, strict=True):
        first.setdefault(tuple(row), sentence)
    return list(first.values())


def evenly(sentences: list[str], n: int) -> list[str]:
    """`n` of the sentences, or all of fewer, evenly spaced."""
    return [sentences[i * len(sentences) // n] for i in range(n)] if n < len(sentences) else sentences
