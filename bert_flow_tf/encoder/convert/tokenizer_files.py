"""Read and write the tokenizer's files of transformers."""

import itertools
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import read_json, write_json
from bert_flow_tf.common.reading import reading
from bert_flow_tf.encoder.convert.folders import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCAB_FILE,
    ForeignSettings,
    read_settings,
)
from bert_flow_tf.encoder.tokenizer import (
    INSTEAD,
    MAX_WORD_CHARS,
    SPECIAL,
    Tokenizer,
    check_special_tokens,
    has_capitals,
    read_vocabulary,
    write_vocabulary,
)
from bert_flow_tf.encoder.weights import TextRules

if TYPE_CHECKING:
    import tokenizers

# A folder's tokenizer must give our ids for these texts and for texts of its word pieces.
_PROBES = (
    *(
        "Señora MÜLLER's naïve café,\tdon't—stop!",
        "東京は日本 is Ünder $1.50 [a]\u00a0b\u200dc\ufffd",
        "x̂ Ǆ ß ﬁ ½ Ａ",
    ),
    *(
        "",
        "a^b `code` ~tilde~ <tag> {brace} |pipe| a_b",
        "é combining Å à́̂̃b İ",
        "中文句子 測試 한국어 문장 ㍿ ㎏ 𠀀𪛟",
    ),
    *(
        "Привет, мир! हिन्दी वाक्य שלום مرحبا ١٢٣",
        "😀 emoji 😂😂 🇺🇸 👩\u200d👩\u200d👧 “curly” ½ ² ™ ∑",
        "control\x00\x01\x7fchars\u2028x",
    ),
)
_MADE_PROBES = 200
# transformers' tokenizers of BERT follow tokenizer_config.json, the others tokenizer.json.
_BERT_TOKENIZERS = ("BertTokenizer", "DistilBertTokenizer")
_OTHER_TOKENIZERS = ("PreTrainedTokenizer", "TokenizersBackend")


# TensorFlow's tables of Unicode are newer than those of the tokenizers library. In hexadecimal,
# these characters are removed by TF1's rules, and letters of a word for the library: formats, and
# marks, which are removed as accents.
_NEWER_FORMATS = "890-891 8e2 110cd 13430-1343f"
_NEWER_MARKS = (
    "7fd 898-89f 8ca-8e1 9fe afa-aff b55 c04 c3c d00 d3b-d3c d81 eba ece 180f 1885-1886 1abf-1ace "
    "1df6-1dfb a82c a8c5 a8ff a9bd 10d24-10d27 10eab-10eac 10efd-10eff 10f46-10f50 10f82-10f85 "
    "11070 11073-11074 110c2 111c9 111cf 1123e 11241 1133b 11438-1143f 11442-11444 11446 1145e "
    "1182f-11837 11839-1183a 1193b-1193c 1193e 11943 119d4-119d7 119da-119db 119e0 "
    "11a01-11a0a 11a33-11a38 11a3b-11a3e 11a47 11a51-11a56 11a59-11a5b 11a8a-11a96 11a98-11a99 "
    "11c30-11c36 11c38-11c3d 11c3f 11c92-11ca7 11caa-11cb0 11cb2-11cb3 11cb5-11cb6 11d31-11d36 "
    "11d3a 11d3c-11d3d 11d3f-11d45 11d47 11d90-11d91 11d95 11d97 11ef3-11ef4 11f00-11f01 "
    "11f36-11f3a 11f40 11f42 13440 13447-13455 16f4f 16fe4 1cf00-1cf2d 1cf30-1cf46 "
    "1e000-1e006 1e008-1e018 1e01b-1e021 1e023-1e024 1e026-1e02a 1e08f 1e130-1e136 1e2ae "
    "1e2ec-1e2ef 1e4ec-1e4ef 1e944-1e94a"
)
# These are words of one character by TF1's rules.
_NEWER_PUNCTUATION = (
    "61d 9fd a76 c77 c84 1b7d-1b7e 2e43-2e4f 2e52-2e5d 10ead 10f55-10f59 10f86-10f89 "
    "1144b-1144f 1145a-1145b 1145d 11660-1166c 116b9 1183b 11944-11946 119e2 11a3f-11a46 "
    "11a9a-11a9c 11a9e-11aa2 11b00-11b09 11c41-11c45 11c70-11c71 11ef7-11ef8 11f43-11f4f 11fff "
    "12ff1-12ff2 16e97-16e9a 16fe2 1e95e-1e95f"
)
_OTHER_IDEOGRAPHS = "2b820-2b91f"
# By TF1's rules, these are letters. The library splits words at the first two, drops the third as
# an accent, and has small letters for the others.
_OLD_PUNCTUATION = "166d"
_OLD_PUNCTUATION_NOW_MARK = "111c9"
_OLD_MARK = "1734"
_NEWER_CAPITALS = "1c89 2c2f a7c0 a7cb-a7cc a7ce a7d0 a7d2 a7d4 a7d6 a7d8 a7da a7dc"
_CASED = r"[\p{Lu}\p{Ll}\p{Lt}]"


def read_tokenizer(
    folder: pathlib.Path, tokenizer_class: str | None
) -> tuple[list[str], TextRules]:
    """Return a folder's word pieces and the rules that give transformers' ids.

    Args:
      tokenizer_class: the class that `config.json` names, used if `tokenizer_config.json` names
        none.

    Raises:
      UserError: no rules give the ids of the tokenizers library, which transformers uses.
    """
    # An encoder folder of this project does not need the library.
    import tokenizers

    path = folder / TOKENIZER_FILE
    settings_path = folder / TOKENIZER_CONFIG_FILE
    settings = read_settings(settings_path)
    kind = (settings.tokenizer_class or tokenizer_class or _BERT_TOKENIZERS[0]).removesuffix("Fast")
    if kind not in _BERT_TOKENIZERS + _OTHER_TOKENIZERS:
        raise UserError(
            f"{settings_path}: tokenizer_class: found {kind}, expected {_BERT_TOKENIZERS[0]}; "
            f"{INSTEAD}"
        )
    theirs = _read_word_pieces(path)
    vocab = _add_tokens(theirs, settings, path)
    if kind in _BERT_TOKENIZERS:
        if settings.do_lower_case is None and has_capitals(vocab):
            expected = (
                "expected true or false, because the vocabulary has capitals and "
                "transformers would lower-case"
            )
            raise UserError(f"{settings_path}: do_lower_case: missing, {expected}")
        theirs.normalizer = tokenizers.normalizers.BertNormalizer(
            handle_chinese_chars=settings.tokenize_chinese_chars,
            strip_accents=settings.strip_accents,
            lowercase=settings.do_lower_case is not False,
        )
        theirs.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    else:
        _check_packing(theirs, path)
    return vocab, _equal_rules(theirs, vocab, path if path.is_file() else folder / VOCAB_FILE)


def _read_word_pieces(path: pathlib.Path) -> "tokenizers.Tokenizer":
    """Read `tokenizer.json`, or the vocabulary beside it if it is missing."""
    import tokenizers

    if not path.is_file():
        pieces = read_vocabulary(path.with_name(VOCAB_FILE))
        ids = {piece: i for i, piece in enumerate(pieces)}
        return tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
    with reading(path, "a tokenizer"):
        theirs = tokenizers.Tokenizer.from_file(str(path))
    if not isinstance(theirs.model, tokenizers.models.WordPiece):
        raise UserError(
            f"{path}: model: found {type(theirs.model).__name__}, expected WordPiece; {INSTEAD}"
        )
    theirs.no_truncation()
    theirs.no_padding()
    return theirs


def _check_packing(theirs: "tokenizers.Tokenizer", path: pathlib.Path) -> None:
    """Raise `UserError` unless a sentence stands between [CLS] and [SEP]."""
    cls, sep = (theirs.token_to_id(token) for token in ("[CLS]", "[SEP]"))
    found = theirs.encode("a").ids
    wanted = [cls, *theirs.encode("a", add_special_tokens=False).ids, sep]
    if found != wanted:
        raise UserError(
            f"{path}: post_processor: found the ids {found} for 'a', expected {wanted}; {INSTEAD}"
        )


def _add_tokens(
    theirs: "tokenizers.Tokenizer", settings: ForeignSettings, path: pathlib.Path
) -> list[str]:
    """Add `tokenizer_config.json`'s tokens; return all word pieces by id."""
    import tokenizers

    with reading(path.with_name(TOKENIZER_CONFIG_FILE), "a tokenizer's settings"):
        # Without tokenizer.json, older versions have added_tokens.json.
        old = path.with_name("added_tokens.json")
        tokens = dict[str, int]()
        if old.is_file() and not path.is_file():
            tokens = read_json(old, dict[str, int], expected="added tokens", versioned=False)
        added: dict[int, dict[str, Any]] = {i: {"content": token} for token, i in tokens.items()}
        added |= settings.added_tokens_decoder
        theirs.add_tokens([tokenizers.AddedToken(**added[i]) for i in sorted(added)])
    if moved := [i for i in sorted(added) if theirs.token_to_id(added[i]["content"]) != i]:
        content = added[moved[0]]["content"]
        found = f"found id {moved[0]}"
        expected = f"expected {theirs.token_to_id(content)}"
        raise UserError(f"{path.parent}: added token {content!r}: {found}, {expected}; {INSTEAD}")
    ids = theirs.get_vocab()
    vocab = sorted(ids, key=ids.__getitem__)
    check_special_tokens(vocab, path)
    return vocab


def _equal_rules(theirs: "tokenizers.Tokenizer", vocab: list[str], path: pathlib.Path) -> TextRules:
    """Return the rules of a tokenizer's ids; raise `UserError` without any."""
    added = {}
    for token in theirs.get_added_tokens_decoder().values():
        if token.lstrip or token.rstrip or token.single_word:
            raise UserError(
                f"{path}: added token {token.content!r}: found lstrip, rstrip or single_word; "
                f"{INSTEAD}"
            )
        if token.content not in SPECIAL:
            added[token.content] = token.normalized
    texts = [
        *_PROBES,
        *_made_probes(vocab),
        *(f"a{token} {token.upper()}-{token}b" for token in added),
    ]
    expected = [one.ids for one in theirs.encode_batch(texts, add_special_tokens=False)]
    best: Sequence[tuple] = ()
    for lower, strip, split in itertools.product((True, False), (None, True, False), (True, False)):
        rules = TextRules(
            do_lower_case=lower,
            strip_accents=strip,
            tokenize_chinese_chars=split,
            added_tokens=added,
        )
        found = Tokenizer(vocab, rules).tokenize(tf.constant(texts)).to_list()
        different = [one for one in zip(texts, expected, found, strict=True) if one[1] != one[2]]
        if not different:
            return rules
        best = min(best or different, different, key=len)
    text, ids, ours = best[0]
    start = next(i for i in range(len(ids) + 1) if ids[: i + 1] != ours[: i + 1])
    theirs_there, ours_there = ids[start : start + 5], ours[start : start + 5]
    found = (
        f"{text[:40]!r} has the ids {theirs_there} from piece {start + 1} on, {ours_there} in TF1"
    )
    kinds = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"}
    cause = next(
        (part for part, kind in kinds.items() if type(getattr(theirs, part)).__name__ != kind),
        "model",
    )
    raise UserError(f"{path}: {cause}: {found}; {INSTEAD}")


def _made_probes(vocab: list[str]) -> list[str]:
    """Return texts of a vocabulary's pieces, alike in every call."""
    rng = np.random.default_rng(0)
    # The library gives every capital sigma the same small letter, TF1 the last one of a word
    # another.
    pieces = [
        piece.removeprefix("##") for piece in vocab if piece not in SPECIAL and "Σ" not in piece
    ]
    changes = (
        str,
        str,
        str.capitalize,
        str.upper,
        lambda piece: piece.replace("a", "á").replace("e", "é"),
    )

    def word() -> str:
        piece = pieces[rng.integers(len(pieces))]
        return changes[rng.integers(len(changes))](piece) if piece.isascii() else piece

    return [
        "".join(word() + " -"[rng.integers(2)] * rng.integers(2) for _ in range(6))
        for _ in range(_MADE_PROBES)
    ]


def write_tokenizer(
    folder: pathlib.Path, vocab: list[str], rules: TextRules, max_seq_length: int
) -> None:
    """Write `vocab.txt` and the files from which transformers makes a tokenizer."""
    write_vocabulary(folder / VOCAB_FILE, vocab)
    write_json(folder / TOKENIZER_FILE, _tokenizer(vocab, rules))
    # PreTrainedTokenizerFast follows tokenizer.json, but BertTokenizer has its own limit for a
    # word's length.
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_seq_length,
        "split_special_tokens": True,
        "do_lower_case": rules.do_lower_case,
    }
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "cls", "sep", "mask", "unk")}
    write_json(folder / TOKENIZER_CONFIG_FILE, settings | names)


def _tokenizer(vocab: list[str], rules: TextRules) -> dict[str, Any]:
    """Return the content of `tokenizer.json`."""
    ids = {piece: i for i, piece in enumerate(vocab)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        # BERT's special tokens are not among them, because TF1 splits a sentence's "[CLS]" like any
        # other word. transformers adds them, but splits them by `split_special_tokens`, too.
        "added_tokens": [
            {
                "id": ids[token],
                "content": token,
                "normalized": normalized,
                "special": False,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
            }
            for token, normalized in sorted(rules.added_tokens.items(), key=lambda one: ids[one[0]])
        ],
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(rules)},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _pre_tokenizers(rules)},
        "post_processor": {
            "type": "BertProcessing",
            "sep": ["[SEP]", ids["[SEP]"]],
            "cls": ["[CLS]", ids["[CLS]"]],
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": MAX_WORD_CHARS,
            "vocab": ids,
        },
    }


def _normalizers(rules: TextRules) -> list[dict[str, Any]]:
    """Return TF1's changes of characters, and then the library's."""
    lower = rules.do_lower_case
    strips = lower if rules.strip_accents is None else rules.strip_accents
    letters = [_OLD_PUNCTUATION]
    letters += [_OLD_MARK] if strips else [_OLD_PUNCTUATION_NOW_MARK]
    letters += [_NEWER_CAPITALS] if lower else []
    # The library removes characters of private use, such as bullets of a text from a PDF, which TF1
    # keeps as letters of unknown words. It keeps U+FDD0, which never is a character.
    changes = [
        _replaced(rf"[\p{{Co}}{_characters(*letters)}]", "\ufdd0"),
        _replaced(f"[{_characters(_NEWER_FORMATS, *[_NEWER_MARKS] * strips)}]", ""),
    ]
    if lower:
        # The library lower-cases each letter alone, but Python, and so TF1, writes a final sigma as
        # ς.
        changes.append(_replaced(rf"(?<={_CASED})Σ(?!{_CASED})", "ς"))
    own = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": rules.tokenize_chinese_chars,
        "strip_accents": rules.strip_accents,
        "lowercase": lower,
    }
    return [*changes, own]


def _pre_tokenizers(rules: TextRules) -> list[dict[str, Any]]:
    """Return the split of TF1's one-character words, then the library's."""
    words = _characters(_NEWER_PUNCTUATION, *[_OTHER_IDEOGRAPHS] * rules.tokenize_chinese_chars)
    split = {
        "type": "Split",
        "behavior": "Isolated",
        "invert": False,
        "pattern": {"Regex": f"[{words}]"},
    }
    return [split, {"type": "BertPreTokenizer"}]


def _characters(*ranges: str) -> str:
    """Return hexadecimal ranges as the inside of an expression's class."""
    bounds = (one.split("-") for part in ranges for one in part.split())
    return "".join("-".join(chr(int(number, 16)) for number in one) for one in bounds)


def _replaced(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
