"""A vocabulary learned from text spells its words, in as many pieces as were asked for."""

from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.encoder.vocabulary import SPECIAL, learn_vocabulary
from tests.refusals import user_error

TEXT = ["The boats sail, the boat sails.", "A Café sails the boats ßtill"] * 20


def test_frequent_words_are_pieces_of_their_own_and_the_rest_is_unused():
    vocab = learn_vocabulary(TEXT, 80, do_lower_case=True)
    assert len(vocab) == len(set(vocab)) == 80 and tuple(vocab[:5]) == SPECIAL
    assert {"the", "boat", "sails", "cafe", "##s"} <= {*vocab} and vocab[-1].startswith("[unused")
    tokenizer = Tokenizer(vocab, do_lower_case=True)
    pieces = tokenizer.tokenize(TEXT).flat_values.numpy()
    assert vocab.index("[UNK]") not in pieces
    cased = learn_vocabulary(TEXT, 80, do_lower_case=False)
    assert {"The", "A", "Café"} <= {*cased}


def test_text_that_gives_no_vocabulary_of_that_size_is_refused():
    with user_error("found 0 different words"):
        learn_vocabulary([" "], 80, do_lower_case=True)
    with user_error("vocab_size: found 10, expected at least the "):
        learn_vocabulary(TEXT, 10, do_lower_case=True)
