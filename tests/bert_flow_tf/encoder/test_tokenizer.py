"""The tokenizer's case and errors; tests/golden has the original's ids."""

import time

import pytest
import tensorflow as tf
import tokenizers

from bert_flow_tf.encoder.convert.tokenizer_files import write_tokenizer
from bert_flow_tf.encoder.tokenizer import Tokenizer, is_uncased, read_vocabulary
from bert_flow_tf.encoder.weights import TextRules
from tests.refusals import user_error

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCAB = [*SPECIAL, "play", "##ing", "##ed", "un", "É", "é", "e", "中", "!", "a", "##a"]


@pytest.mark.parametrize(
    ("sentence", "do_lower_case", "pieces"),
    [
        ("É é e", False, ["É", "é", "e"]),
        ("É é e", True, ["e", "e", "e"]),
        (b"pl\xffay", True, ["play"]),
    ],
)
def test_a_packed_sentence_has_these_pieces(sentence, do_lower_case, pieces):
    # The vocabulary is reversed, because id 0 is the usual padding.
    tokenizer = Tokenizer(VOCAB[::-1], TextRules(do_lower_case=do_lower_case))
    ids = tokenizer.pack(tokenizer.tokenize(tf.constant([sentence, "! ! ! !"])), 8)[
        "input_word_ids"
    ][0]
    assert [VOCAB[::-1][i] for i in ids] == [
        "[CLS]",
        *pieces,
        "[SEP]",
        *["[PAD]"] * (4 - len(pieces)),
    ]


@pytest.mark.differs("`--do_lower_case`")
@pytest.mark.parametrize(
    ("given", "capital", "folder", "expected"),
    [
        (None, "a", "uncased_L-12_H-768_A-12", True),
        (False, "a", "wwm_uncased_L-24_H-1024_A-16", "wwm_uncased_L-24_H-1024_A-16, expected True"),
        (None, "A", "multi_cased_L-12_H-768_A-12", False),
        (True, "a", "cased_L-12_H-768_A-12", "cased_L-12_H-768_A-12, expected False"),
        (None, "A", "mine", False),
        (True, "A", "mine", "capitals in the vocabulary of mine"),
        (None, "a", "mine", True),
        (False, "a", "mine", False),
    ],
)
def test_lower_case_follows_flag_folder_and_vocabulary(given, capital, folder, expected):
    if isinstance(expected, bool):
        assert is_uncased(given, [*SPECIAL, capital], folder) is expected
    else:
        with user_error(f"do_lower_case: found {given} and ", expected):
            is_uncased(given, [*SPECIAL, capital], folder)


@pytest.mark.differs("repeated or empty")
@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("\n".join([*VOCAB, "play"]).encode(), [", line 17: 'play'"]),
        ("\n".join([*VOCAB, "", "x"]).encode(), [", line 17: ''"]),
        ("\n".join(VOCAB[1:]).encode(), ["[PAD]", "15"]),
        (b"a\nabc\xff", ["vocab.txt: cannot be read"]),
        (None, ["vocab.txt: no such file"]),
    ],
)
def test_a_bad_vocabulary_is_named_with_its_line(tmp_path, content, parts):
    if content is not None:
        (tmp_path / "vocab.txt").write_bytes(content)
    with user_error(str(tmp_path / "vocab.txt"), *parts):
        read_vocabulary(tmp_path / "vocab.txt")


def test_a_piece_repeated_after_a_million_is_found_at_once(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{i}\n" for i in range(10**6)) + "7\n")
    started = time.monotonic()
    with user_error(f"{path}, line 1000001: '7' is repeated"):
        read_vocabulary(path)
    # A scan of all earlier lines would take hours.
    assert time.monotonic() - started < 30


def test_pieces_are_lines_that_tensorflow_text_takes(tmp_path):
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(VOCAB).encode() + b"\r\n")
    assert read_vocabulary(tmp_path / "vocab.txt") == VOCAB
    for piece in ("x" * 300, "a\0b"):
        with user_error("vocabulary: cannot be read"):
            Tokenizer([*VOCAB, piece], TextRules(do_lower_case=True))


@pytest.mark.parametrize("lower", [True, False])
def test_a_written_tokenizer_gives_our_ids_to_programs_without_transformers(tmp_path, lower):
    vocab = [*SPECIAL, *"[]abk", "##b", "cls", "mask", "CLS", "MASK"]
    rules = TextRules(do_lower_case=lower, added_tokens={"<USER>": False})
    write_tokenizer(tmp_path, [*vocab, "<USER>"], rules, 16)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    # The last two hold characters of private use, as bullets of a text from a PDF.
    texts = ["[MASK] [CLS]a<USER>b", "[UNK]", "\uf0b7 a", "a\ue000b \U000f0000"]
    ours = Tokenizer([*vocab, "<USER>"], rules)(tf.constant(texts), 16)
    found = [one.ids for one in theirs.encode_batch(texts)]
    lengths = tf.reduce_sum(ours["input_mask"], axis=1)
    assert found == tf.RaggedTensor.from_tensor(ours["input_word_ids"], lengths).to_list()


@pytest.mark.parametrize(
    "rules",
    [
        {"do_lower_case": True},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False},
    ],
)
def test_every_code_point_has_the_ids_of_tokenizer_json(rules, tmp_path):
    rules = TextRules(**rules)
    vocab = [*SPECIAL, *"abςσ", *(f"##{one}" for one in "abςσ")]
    write_tokenizer(tmp_path, vocab, rules, 128)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    # All of a million take a minute; of long runs of like ones, ends and some inside are enough.
    alike = [(0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xD800, 0xDFFF)]
    alike += [(0xE000, 0xF8FF), (0x17000, 0x18CD5), (0x20000, 0x2A6DF), (0x2A700, 0x2B81D)]
    alike += [(0x2B920, 0x2CEA1), (0x2CEB0, 0x2EBE0), (0x2FA20, 0xE0000), (0xE0200, 0x10FFFF)]
    inside = {i for low, high in alike for i in range(low + 2, high - 1) if i % 97}
    points = [i for i in range(1, 0x110000) if not 0xD800 <= i < 0xE000 and i not in inside]
    texts = [f"a{chr(i)}b" for i in points]
    texts += ["αΣ中", "中Σ", "αΣ", "אΣ", "Σא", "αΣα", "ΑΣ.", "ΑΣ-Α"]
    expected = [one.ids for one in theirs.encode_batch_fast(texts, add_special_tokens=False)]
    found = [row.tolist() for row in Tokenizer(vocab, rules).rows(texts, 2**31).rows]
    different = [text for text, a, b in zip(texts, found, expected, strict=True) if a != b]
    assert not different, [f"U+{ord(text[1]):04X}" for text in different]
