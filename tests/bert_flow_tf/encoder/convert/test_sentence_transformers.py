"""Settings of sentence-transformers folders, as older and newer versions write them."""

import json

import pytest

from bert_flow_tf.encoder.convert.hugging_face import read_modules, sentence_transformer
from tests.refusals import user_error

BERT, POOLING, SETTINGS = (
    "0_Transformer",
    "1_Pooling/config.json",
    "0_Transformer/sentence_bert_config.json",
)


def write(folder, files, kinds=("Transformer", "Pooling", "Normalize"), **pooling):
    paths = [BERT, *(f"{i}_{kind}" for i, kind in enumerate(kinds[1:], start=1))]
    modules = [
        {"type": f"sentence_transformers.models.{kind}", "path": path}
        for kind, path in zip(kinds, paths, strict=True)
    ]
    pooling = pooling or {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    for name, content in ({"modules.json": modules, POOLING: pooling} | files).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return folder


def read(folder):
    modules = read_modules(folder)
    return modules[0].path, sentence_transformer(folder, modules)


def test_settings_of_older_and_newer_versions_are_read(tmp_path):
    assert read_modules(tmp_path) == []
    older = write(tmp_path / "older", {SETTINGS: {"max_seq_length": 128, "do_lower_case": False}})
    assert read(older) == (
        BERT,
        {"pooling": "avg", "max_seq_length": 128, "normalize": True},
    )
    # Without a length of the folder, the least of tokenizer and positions counts.
    lengths = {f"{BERT}/config.json": {"max_position_embeddings": 512}}
    lengths[f"{BERT}/tokenizer_config.json"] = {"model_max_length": 256}
    newer = write(tmp_path / "newer", lengths, ("Transformer", "Pooling"), pooling_mode="cls")
    assert read(newer) == (
        BERT,
        {"pooling": "paper-cls", "max_seq_length": 256, "normalize": False},
    )


@pytest.mark.parametrize(
    ("files", "changes", "parts"),
    [
        ({}, {"kinds": ("Transformer", "Pooling", "Dense")}, ["modules.json", "Dense"]),
        ({}, {"pooling_mode": "max"}, [POOLING, "pooling_mode: found max"]),
        (
            {},
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
            ["found pooling_mode_cls_token and"],
        ),
        ({SETTINGS: {"do_lower_case": True}}, {}, [SETTINGS, "do_lower_case: found true"]),
        ({SETTINGS: {"max_seq_length": -1}}, {}, [SETTINGS, "max_seq_length: found -1"]),
        (
            {SETTINGS: {"max_seq_length": "long"}},
            {},
            [SETTINGS, "Expected `int | null`, got `str` - at `$.max_seq_length`"],
        ),
    ],
)
def test_unsupported_settings_are_named(tmp_path, files, changes, parts):
    with user_error(*parts):
        read(write(tmp_path, files, **changes))


@pytest.mark.parametrize(
    ("modules", "found"),
    [
        (
            [{"type": "a.Transformer", "path": "../secret"}],
            "modules.json: path: found ../secret, expected a folder in",
        ),
        ([{"type": "a.Transformer", "path": "/secret"}], "modules.json: path: found /secret"),
        ([{"type": "a.Transformer", "path": 0}], "modules.json: cannot be read"),
        ([{"type": 1, "path": ""}], "modules.json: cannot be read"),
        ({"type": "a.Transformer"}, "modules.json: cannot be read"),
    ],
)
def test_modules_outside_the_folder_or_of_other_types_are_named(tmp_path, modules, found):
    if isinstance(modules, list):
        modules.append({"type": "a.Pooling", "path": "1_Pooling"})
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with user_error(found):
        read_modules(tmp_path)
