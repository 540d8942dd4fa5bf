"""BertFlow has the values and arguments of sentence-transformers."""

import inspect
import json
import pathlib
import re

import numpy as np
import pytest

from bert_flow_tf.api import BertFlow
from bert_flow_tf.vectors.similarities import FUNCTIONS
from tests.refusals import user_error

pytestmark = pytest.mark.usefixtures("small_default_flow")

GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "sentence_transformers.md"
ENCODES = ("encode", "encode_query", "encode_document")


@pytest.fixture(scope="module")
def model(golden_dir):
    return BertFlow.from_hub(golden_dir / "transformers" / "sentence_transformer")


@pytest.fixture(scope="module")
def expected(golden_dir):
    return np.load(golden_dir / "transformers" / "sentence_transformer.npz")


@pytest.fixture(scope="module")
def texts(golden_dir):
    """Those that both tokenizers split alike, see test_transformers.py."""
    cases = json.loads((golden_dir / "tokenization_uncased.json").read_text())["cases"]
    return [
        (i, case["text"])
        for i, case in enumerate(cases)
        if "[CLS]" not in case["text"] and len(case["text"]) < 90
    ]


def test_prompts_and_truncation_are_the_librarys(model, expected, texts):
    rows, sentences = zip(*((i, text) for i, text in texts if "\u03a3" not in text), strict=True)
    rows = list(rows)
    prompted = model.encode(sentences, prompt="the ", normalize_embeddings=True)
    np.testing.assert_allclose(prompted, expected["prompted"][rows], atol=1e-5)
    truncated = model.encode(sentences, truncate_dim=5, normalize_embeddings=True)
    np.testing.assert_allclose(truncated, expected["truncated"][rows], atol=1e-5)
    model.prompts = {"query": "the ", "passage": "a "}
    named = model.encode(sentences, prompt_name="query", normalize_embeddings=True)
    np.testing.assert_array_equal(named, prompted)
    np.testing.assert_array_equal(
        model.encode_query(sentences, normalize_embeddings=True), prompted
    )
    np.testing.assert_array_equal(
        model.encode_document(sentences[:3]),
        model.encode([f"a {sentence}" for sentence in sentences[:3]]),
    )
    # What is named goes before, an empty prompt too.
    np.testing.assert_array_equal(model.encode_query("cat", prompt=""), model.encode("cat"))
    with user_error("prompt_name: found 'other', expected None or one of query, passage"):
        model.encode("cat", prompt_name="other")
    model.prompts = {}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_similarities_are_the_librarys(model, expected, name):
    embeddings = expected["embeddings"]
    scales = np.linspace(0.5, 2, len(embeddings), dtype=np.float32)
    vectors = embeddings * scales[:, np.newaxis]
    model.similarity_fn_name = name
    np.testing.assert_allclose(
        model.similarity(vectors[:20], vectors[20:30]), expected[f"{name}_all"], atol=2e-6
    )
    found = model.similarity_pairwise(vectors[:20], vectors[20:40])
    np.testing.assert_allclose(found, expected[f"{name}_pairs"], atol=2e-6)
    model.similarity_fn_name = "cosine"


def test_a_length_that_is_set_counts(model):
    long = "cat " * 20
    before = model.encode(long), model.fingerprint
    model.max_seq_length = 5
    assert model.record.max_seq_length == 5 and model.fingerprint != before[1]
    np.testing.assert_array_equal(model.encode(long), model.encode("cat cat cat"))
    assert model.tokenize([long])["input_word_ids"].shape == (1, 5)
    for length in (2, 25, True, "5"):
        with user_error(f"max_seq_length: found {length!r}, expected a whole number from 3 to 24"):
            model.max_seq_length = length
    model.max_seq_length = 12
    np.testing.assert_array_equal(model.encode(long), before[0])


def test_arguments_that_do_not_fit_are_named(model):
    wrong = {
        "device": ["cuda"],
        "truncate_dim": [17, 0, 5.0, True],
        "precision": ["int4"],
        "output_value": ["token_embeddings"],
    }
    for name, value in [(name, value) for name, values in wrong.items() for value in values]:
        with user_error(f"{name}: found {value!r}"):
            model.encode("cat", **{name: value})
    with user_error("prompts: found {'a': 1}"):
        model.prompts = {"a": 1}
    with user_error("similarity_fn_name: found 'cos'"):
        model.similarity_fn_name = "cos"
    with user_error("similarity_pairwise: found 2 and 1 rows"):
        model.similarity_pairwise(["a", "b"], ["a"])


def said(text):
    """Name -> yes, no or None only, of a table."""
    rows = re.findall(r"^\| (`.+?) \| (yes|no|\S+ only)[:;, ]?.* \|$", text, re.MULTILINE)
    return {name: here for names, here in rows for name in re.findall(r"`(\w+)`", names)}


def test_the_guide_names_all_that_the_library_has(golden_dir):
    signatures = json.loads((golden_dir / "transformers" / "signatures.json").read_text())
    said_of_arguments, said_of_methods = map(
        said, GUIDE.read_text().split("\nMethods and properties ")
    )
    methods = set(signatures) - {"properties"} | set(signatures["properties"])
    arguments = {name for method in ENCODES for name in signatures[method]} - {"self"}
    assert set(said_of_arguments) == arguments
    assert methods & set(dir(BertFlow)) <= set(said_of_methods) <= methods
    here = {name for name, is_here in said_of_methods.items() if is_here == "yes"}
    # Attributes, and what a class has.
    assert {"tokenizer", "dtype"} < here <= set(dir(BertFlow)) | {"tokenizer", "dtype"}
    ours = [name for name in inspect.signature(BertFlow.encode).parameters if name != "self"]
    # In its order, so that arguments without names mean the same.
    theirs = [
        name for name in signatures["encode"] if name != "self" and said_of_arguments[name] != "no"
    ]
    assert ours == ["sentences", *theirs[1:]]


def test_a_table_instead_of_its_column_is_named(model):
    columns = {"columns": ["text"], "__iter__": lambda self: iter(self.columns)}
    with user_error("sentences: found a table, expected one of its columns, such as df['text']"):
        model.encode(type("DataFrame", (), columns)())


def test_a_text_that_is_no_unicode_is_named_with_its_index(model):
    for call in (
        model.encode,
        lambda texts: model.similarity(texts, texts),
        lambda texts: model.fit(texts * 40),
    ):
        with user_error("[1]: found 'w1 \\ud800', a text that is no Unicode"):
            call(["cat", "w1 \ud800"])
