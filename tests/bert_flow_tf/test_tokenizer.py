"""The in-graph tokenizer against the ids of the original's Python tokenizer, and its errors."""

import json

import pytest
import tensorflow as tf

from bert_flow_tf.errors import UserError
from bert_flow_tf.tokenizer import Tokenizer, check_vocabulary, read_vocabulary

VOCAB = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "play",
    "##ing",
    "##ed",
    "un",
    "É",
    "é",
    "e",
    "中",
    "!",
    "a",
    "##a",
]


def pieces(tokenizer, sentence):
    ids = tokenizer.tokenize(tf.constant([sentence])).to_list()[0]
    return [VOCAB[i] for i in ids]


def test_longest_piece_is_matched_first():
    assert pieces(Tokenizer(VOCAB, True), "Playing unplayed!") == ["play", "##ing", "[UNK]", "!"]


def test_cased_vocabulary_keeps_case_and_accents_and_uncased_drops_both():
    assert pieces(Tokenizer(VOCAB, False), "É é e") == ["É", "é", "e"]
    assert pieces(Tokenizer(VOCAB, True), "É é e") == ["e", "e", "e"]


def test_cjk_characters_are_words_of_their_own():
    assert pieces(Tokenizer(VOCAB, True), "play中play") == ["play", "中", "play"]


def test_word_of_200_characters_is_matched_and_of_201_is_unknown():
    tokenizer = Tokenizer(VOCAB, True)
    assert pieces(tokenizer, "a" * 200) == ["a"] + ["##a"] * 199
    assert pieces(tokenizer, "a" * 201) == ["[UNK]"]


def test_bytes_that_are_not_utf8_are_dropped():
    assert pieces(Tokenizer(VOCAB, True), b"pl\xffay") == ["play"]


def test_pack_truncates_adds_special_tokens_and_pads_to_the_longest_row():
    packed = Tokenizer(VOCAB, True)(tf.constant(["play play play play", ""]), max_seq_length=5)
    assert packed["input_word_ids"].numpy().tolist() == [[2, 5, 5, 5, 3], [2, 3, 0, 0, 0]]
    assert packed["input_mask"].numpy().tolist() == [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]
    assert not packed["input_type_ids"].numpy().any()


def test_pack_to_max_length_has_a_static_shape_in_a_data_pipeline():
    tokenizer = Tokenizer(VOCAB, True)
    data = (
        tf.data.Dataset.from_tensor_slices(["play", "playing a"])
        .batch(2)
        .map(lambda s: tokenizer(s, 8, pad_to_max=True))
    )
    assert data.element_spec["input_word_ids"].shape.as_list() == [None, 8]
    assert next(iter(data))["input_word_ids"].numpy().tolist() == [[2, 5, 3, 0, 0, 0, 0, 0], [2, 5, 6, 14, 3, 0, 0, 0]]


def test_pack_refuses_a_length_without_room_for_a_piece():
    tokenizer = Tokenizer(VOCAB, True)
    with pytest.raises(UserError, match="max_seq_length 2"):
        tokenizer(tf.constant(["play"]), 2)


def test_saved_model_gives_the_same_ids(tmp_path):
    module = tf.Module()
    module.tokenizer = Tokenizer(VOCAB, True)
    module.serve = tf.function(lambda s: module.tokenizer(s, 6), input_signature=[tf.TensorSpec([None], tf.string)])
    expected = module.serve(tf.constant(["unplayed a", "!"]))
    tf.saved_model.save(module, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved")).serve(tf.constant(["unplayed a", "!"]))
    for name, ids in expected.items():
        assert loaded[name].numpy().tolist() == ids.numpy().tolist()


def test_fingerprint_depends_on_vocabulary_and_case():
    first = Tokenizer(VOCAB, True)
    assert first.fingerprint == Tokenizer(list(VOCAB), True).fingerprint
    assert first.fingerprint != Tokenizer(VOCAB, False).fingerprint
    assert first.fingerprint != Tokenizer([*VOCAB, "more"], True).fingerprint


def test_read_vocabulary_strips_line_ends_of_either_kind(tmp_path):
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(VOCAB).encode() + b"\r\n")
    assert read_vocabulary(tmp_path / "vocab.txt") == VOCAB


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([*VOCAB, "play"], r"vocab.txt, line 17: 'play' is already on line 6"),
        ([*VOCAB, "", "x"], r"vocab.txt, line 17: empty"),
        ([v for v in VOCAB if v != "[MASK]"], r"vocab.txt: no \[MASK\] among its 15 lines"),
    ],
)
def test_bad_vocabulary_is_named_with_its_line(tmp_path, lines, message):
    (tmp_path / "vocab.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=message):
        read_vocabulary(tmp_path / "vocab.txt")


def test_missing_or_undecodable_vocabulary_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere.txt: vocabulary cannot be read"):
        read_vocabulary(tmp_path / "nowhere.txt")
    (tmp_path / "vocab.txt").write_bytes(b"abc\xff")
    with pytest.raises(UserError, match=r"byte 3 is not UTF-8"):
        read_vocabulary(tmp_path / "vocab.txt")
    with pytest.raises(UserError, match=r"no \[PAD\]"):
        check_vocabulary(VOCAB[1:])


def reference_cases(golden_dir):
    """The original's ids of 61 awkward strings, with the few pieces of the 30,522-entry vocabulary that they use."""
    return json.loads((golden_dir / "tokenization_uncased.json").read_text())["cases"]
