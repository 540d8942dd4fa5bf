"""Settings of sentence-transformers folders, as older and newer versions write them; what is not here is refused."""

import json

import pytest

from bert_flow_tf.encoder.convert.hugging_face import SentenceTransformer, sentence_transformer
from tests.refusals import user_error

OLD = "sentence_transformers.models."


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return folder


def files(*kinds, path="0_Transformer", **pooling):
    kinds = kinds or ("Transformer", "Pooling", "Normalize")
    paths = [path, *(f"{i}_{kind}" for i, kind in enumerate(kinds[1:], start=1))]
    modules = [
        {"idx": i, "type": OLD + kind, "path": at} for i, (kind, at) in enumerate(zip(kinds, paths, strict=True))
    ]
    pooling = pooling or {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    return {"modules.json": modules, "1_Pooling/config.json": {"word_embedding_dimension": 8, **pooling}}


def test_a_bert_alone_asks_for_nothing(tmp_path):
    assert sentence_transformer(tmp_path) == SentenceTransformer()


def test_older_names_and_a_folder_of_their_own_for_the_transformer(tmp_path):
    settings = {"0_Transformer/sentence_bert_config.json": {"max_seq_length": 128, "do_lower_case": False}}
    found = sentence_transformer(write(tmp_path, files() | settings))
    assert found == SentenceTransformer("0_Transformer", "avg", 128)


def test_the_state_at_cls_and_the_least_of_tokenizer_and_positions(tmp_path):
    lengths = {
        "0_Transformer/config.json": {"max_position_embeddings": 512},
        "0_Transformer/tokenizer_config.json": {"model_max_length": 256},
    }
    found = sentence_transformer(write(tmp_path, files("Transformer", "Pooling", pooling_mode="cls") | lengths))
    assert found == SentenceTransformer("0_Transformer", "paper-cls", 256)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (files("Transformer", "Pooling", "Dense"), "modules.json: found modules"),
        (files(pooling_mode="max"), "pooling_mode: found max, expected mean or cls"),
        (
            files(pooling_mode_cls_token=True, pooling_mode_mean_tokens=True),
            "pooling_mode: found pooling_mode_cls_token and ",
        ),
        (
            files() | {"0_Transformer/sentence_bert_config.json": {"do_lower_case": True}},
            "do_lower_case: found true",
        ),
        (
            files() | {"0_Transformer/sentence_bert_config.json": {"max_seq_length": -1}},
            "0_Transformer/sentence_bert_config.json: max_seq_length: found -1",
        ),
    ],
)
def test_what_this_model_cannot_do_is_refused(tmp_path, content, message):
    with user_error(message):
        sentence_transformer(write(tmp_path, content))
