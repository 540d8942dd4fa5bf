"""Read and write the tokenizer's files of transformers."""

import pathlib
from typing import Any

import tensorflow as tf

from bert_flow_tf.encoder.convert.folders import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, VOCAB_FILE
from bert_flow_tf.encoder.tokenizer import MAX_WORD_CHARS, SPECIAL, Tokenizer, is_uncased
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import read_json, write_json
from bert_flow_tf.files.reading import reading

# A folder's tokenizer must give TF1's ids for these texts and for words of its vocabulary.
_PROBES = ("Señora MÜLLER's naïve café,\tdon't—stop!", "東京 is Ünder $1.50 [a]\u00a0b\u200dc\ufffd", "x̂ Ǆ ß ﬁ ½ Ａ")


def read_case(folder: pathlib.Path, vocab: list[str], name: str) -> bool:
    """Return True if a folder's tokenizer lower-cases the text.

    Args:
      name: the model's name, which decides if there are only word pieces, see `tokenizer.is_uncased`.

    Raises:
      UserError: neither case gives the ids of the tokenizers library, which reads `tokenizer.json`.
    """
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        settings = folder / TOKENIZER_CONFIG_FILE
        found = (
            read_json(settings, dict, expected="a tokenizer's settings", versioned=False) if settings.is_file() else {}
        )
        given = found.get("do_lower_case")
        return is_uncased(None, vocab, name) if given is None else bool(given)
    import tokenizers

    with reading(path, "a tokenizer"):
        theirs = tokenizers.Tokenizer.from_file(str(path))
        theirs.no_truncation()
        theirs.no_padding()
    words = " ".join([piece for piece in vocab if piece.isalpha() and piece.isascii()][::16])
    texts = [*_PROBES, words, words.upper(), words.replace("a", "á").replace("e", "é")]
    expected = [one.ids for one in theirs.encode_batch(texts, add_special_tokens=False)]
    for lower in (True, False):
        found = Tokenizer(vocab, lower).tokenize(tf.constant(texts)).to_list()
        if found == expected:
            return lower
    text, ids = next((text, ids) for text, ids, ours in zip(texts, expected, found, strict=True) if ids != ours)
    raise UserError(f"{path}: {text[:40]!r} has the word pieces {ids[:9]}, expected those of TF1's BERT")


def write_tokenizer(folder: pathlib.Path, vocab: list[str], do_lower_case: bool, max_seq_length: int) -> None:
    """Write `vocab.txt` and the files from which transformers makes a tokenizer."""
    (folder / VOCAB_FILE).write_text("".join(f"{piece}\n" for piece in vocab), encoding="utf-8")
    ids = {piece: i for i, piece in enumerate(vocab)}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    packing = {name: [f"[{name.upper()}]", ids[f"[{name.upper()}]"]] for name in ("sep", "cls")}
    normalizer: dict[str, Any] = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    normalizer |= {"strip_accents": None, "lowercase": do_lower_case}
    if do_lower_case:
        # The library lower-cases each letter alone, but Python, and so TF1, writes a final sigma as ς.
        final = {"type": "Replace", "pattern": {"Regex": r"(?<=\p{L})Σ(?!\p{L})"}, "content": "ς"}
        normalizer = {"type": "Sequence", "normalizers": [final, normalizer]}
    word_piece = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    tokenizer = {
        **{"version": "1.0", "truncation": None, "padding": None},
        "added_tokens": [{"id": ids[token], "content": token, **plain} for token in SPECIAL],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", **packing},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": word_piece | {"max_input_chars_per_word": MAX_WORD_CHARS, "vocab": ids},
    }
    write_json(folder / TOKENIZER_FILE, tokenizer)
    # PreTrainedTokenizerFast follows tokenizer.json, but BertTokenizer has its own limit for a word's length.
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_seq_length}
    # A sentence may contain "[CLS]", which TF1 splits like any other word.
    settings |= {"split_special_tokens": True, "do_lower_case": do_lower_case}
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "cls", "sep", "mask", "unk")}
    write_json(folder / TOKENIZER_CONFIG_FILE, settings | names)
