"""Folders of Hugging Face give the library's embeddings or are refused."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from benchmarks.peers import peer_environment
from bert_flow_tf import BertFlow
from bert_flow_tf.encoder.convert.hugging_face import read_hugging_face
from bert_flow_tf.encoder.weights import TextRules
from tests.refusals import user_error

CONFIG, TOKENIZER, MODULES = "tokenizer_config.json", "tokenizer.json", "modules.json"
TEXTS = [
    *(
        "The quick brown fox",
        "",
        "Señora MÜLLER's naïve café",
        "東京は日本",
        "covid19 COVID19x",
        "<USER> says C++, <user>",
    ),
    *(
        "Straße $1.50 a^b",
        "é à́̂̃b",
        "tab\tand\nline",
        "😀 emoji",
        "#hashtag @mention",
        "x\u200dy\ufffd",
    ),
]
THEIRS = """
import json, sys
import numpy as np
from sentence_transformers import SentenceTransformer
texts = json.load(open("texts.json"))
np.savez("theirs.npz", **{
    name: SentenceTransformer(name, device="cpu").encode(texts, show_progress_bar=False) for name in sys.argv[1:]
})
"""


def added(i, content, **flags):
    plain = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": True,
        "special": False,
    }
    return {"id": i, "content": content, **plain, **flags}


def tokens(*tokens):
    return {"added_tokens_decoder": {token.pop("id"): token for token in tokens}}


def modules(*names):
    types = [f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", *names)]
    return [
        {"idx": i, "name": f"{i}", "path": f"{i}_" * (i > 0), "type": kind}
        for i, kind in enumerate(types)
    ]


POOLING = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
PROMPTS = {
    "prompts": {"query": "search: ", "document": ""},
    "default_prompt_name": "query",
    "similarity_fn_name": "dot",
}
# The values are a golden folder, changes of its JSON files, and the rules that are found.
KINDS = {
    "plain": ("bert", {}, TextRules(do_lower_case=True)),
    "no_chinese": (
        "bert",
        {CONFIG: {"tokenize_chinese_chars": False}},
        TextRules(do_lower_case=True, tokenize_chinese_chars=False),
    ),
    "no_strip": (
        "bert",
        {CONFIG: {"strip_accents": False}},
        TextRules(do_lower_case=True, strip_accents=False),
    ),
    "by_config": (
        "bert_cased_gelu_new",
        {CONFIG: {"do_lower_case": True}},
        TextRules(do_lower_case=True),
    ),
    "added": (
        "bert",
        {
            CONFIG: tokens(
                added(433, "covid19"), added(434, "<USER>", normalized=False), added(435, "C++")
            )
        },
        TextRules(do_lower_case=True, added_tokens={"covid19": True, "<USER>": False, "C++": True}),
    ),
    "normalize": (
        "bert",
        {MODULES: modules("Normalize"), "1_/config.json": POOLING},
        TextRules(do_lower_case=True),
    ),
    "prompts": (
        "bert",
        {
            MODULES: modules(),
            "1_/config.json": POOLING,
            "config_sentence_transformers.json": PROMPTS,
        },
        TextRules(do_lower_case=True),
    ),
    "length_of_tokenizer": (
        "bert",
        {CONFIG: {"model_max_length": 7}},
        TextRules(do_lower_case=True),
    ),
    "old_length": (
        "bert",
        {
            MODULES: modules(),
            "1_/config.json": POOLING,
            "sentence_distilbert_config.json": {"max_seq_length": 7},
        },
        TextRules(do_lower_case=True),
    ),
}


@pytest.fixture(scope="module")
def folder_of(golden_dir, tmp_path_factory):
    """Return a function that copies a golden folder and changes its files."""

    def change(golden, files):
        folder = shutil.copytree(
            golden_dir / "transformers" / golden, tmp_path_factory.mktemp("kinds") / "model"
        )
        vocabulary = folder / "vocab.txt"
        if "added_tokens_decoder" in files.get(CONFIG, {}):
            # The new tokens take the ids of the last three pieces.
            vocabulary.write_text("".join(vocabulary.read_text().splitlines(keepends=True)[:-5]))
        for name, changes in files.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            found = json.loads(path.read_text()) if path.is_file() else {}
            path.write_text(json.dumps(found | changes if isinstance(changes, dict) else changes))
        return folder

    return change


@pytest.mark.parametrize("kind", KINDS)
def test_the_rules_of_a_folder_are_found(folder_of, kind):
    golden, files, expected = KINDS[kind]
    record = read_hugging_face(folder_of(golden, files)).record
    assert TextRules(do_lower_case=record.do_lower_case, **record.unlike_tf1) == expected
    if kind == "prompts":
        assert {name: getattr(record, name) for name in PROMPTS} == PROMPTS


def test_sentence_transformers_gives_the_same_embeddings(folder_of, require, tmp_path):
    python = require("sentence-transformers")
    for kind, (golden, files, _) in KINDS.items():
        shutil.move(folder_of(golden, files), tmp_path / kind)
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS))
    environment = peer_environment() | {"PYTHONPATH": ""}
    command = [str(python), "-c", THEIRS, *KINDS]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = np.load(tmp_path / "theirs.npz")
    for kind in KINDS:
        model = BertFlow.from_hub(tmp_path / kind)
        np.testing.assert_allclose(
            model.encode(TEXTS), found[kind], atol=1e-5 * np.abs(found[kind]).max(), err_msg=kind
        )


FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}


NO_SPECIAL = {"post_processor": None}
LIBRARY, BERT_SETTINGS = "config_sentence_transformers.json", "sentence_bert_config.json"


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        ({"config.json": {"is_decoder": True}}, ["config.json: is_decoder: found true"]),
        (
            {"config.json": {"quantization_config": {"load_in_8bit": True}}},
            ["config.json", "$.quantization_config"],
        ),
        ({CONFIG: {"truncation_side": "left"}}, [CONFIG, "'left'", "$.truncation_side"]),
        ({CONFIG: {"padding_side": "left"}}, [CONFIG, "'left'", "$.padding_side"]),
        ({"adapter_config.json": {"peft_type": "LORA"}}, ["adapter_config.json: found an adapter"]),
        ({MODULES: modules(), LIBRARY: {"truncate_dim": 8}}, [LIBRARY, "$.truncate_dim"]),
        (
            {MODULES: modules(), LIBRARY: {"default_prompt_name": "b"}},
            ["default_prompt_name: found b, expected one of"],
        ),
        (
            {MODULES: modules(), BERT_SETTINGS: {"tokenizer_args": {"a": 1}}},
            [BERT_SETTINGS, "$.tokenizer_args"],
        ),
        (
            {MODULES: modules(), BERT_SETTINGS: {"model_args": {"hidden_act": "relu"}}},
            ["'hidden_act'", "$.model_args"],
        ),
        (
            {MODULES: [{"type": "mine.Transformer", "path": ""}]},
            [MODULES, "found mine.Transformer"],
        ),
    ],
)
def test_settings_that_would_change_embeddings_are_refused(folder_of, files, parts):
    folder = folder_of("bert", {"1_/config.json": POOLING} | files)
    with user_error(str(folder), *parts):
        read_hugging_face(folder)


@pytest.mark.parametrize(
    ("golden", "files", "parts"),
    [
        ("distilbert", {TOKENIZER: NO_SPECIAL, CONFIG: FAST}, ["post_processor: found the ids"]),
        (
            "bert",
            {CONFIG: {"tokenizer_class": "BertJapaneseTokenizer"}},
            ["found BertJapaneseTokenizer"],
        ),
        (
            "bert",
            {CONFIG: tokens(added(433, "xyzzy", lstrip=True))},
            ["added token 'xyzzy': found lstrip"],
        ),
        ("bert", {CONFIG: tokens(added(450, "xyzzy"))}, ["found id 450, expected 433"]),
        (
            "distilbert",
            {TOKENIZER: {"normalizer": None}, CONFIG: FAST},
            ["normalizer: ", "from piece", "in TF1"],
        ),
        (
            "distilbert",
            {TOKENIZER: {"pre_tokenizer": {"type": "WhitespaceSplit"}}, CONFIG: FAST},
            ["pre_tokenizer: ", "from piece"],
        ),
        (
            "distilbert",
            {TOKENIZER: {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["[UNK]", 0.0]]}}},
            ["found Unigram, expected WordPiece"],
        ),
        (
            "bert_cased_gelu_new",
            {CONFIG: {"tokenizer_class": None}, "config.json": {"model_type": "mpnet"}},
            ["mpnet"],
        ),
    ],
)
def test_other_tokenizers_are_refused(folder_of, golden, files, parts):
    folder = folder_of(golden, files)
    with user_error(str(folder), *parts, "bert_flow_tf.calibration"):
        read_hugging_face(folder)


@pytest.mark.parametrize(
    ("length", "expected"), [(7, 7), (24, None), (200, None), (1e30, None), (None, None)]
)
def test_a_tokenizers_length_holds_below_the_positions(folder_of, length, expected):
    folder = folder_of("bert", {CONFIG: {"model_max_length": length}})
    assert read_hugging_face(folder).record.max_seq_length == expected


def test_a_cased_vocabulary_needs_its_case(golden_dir, tmp_path):
    folder = shutil.copytree(
        golden_dir / "transformers" / "bert_cased_gelu_new", tmp_path / "model"
    )
    (folder / CONFIG).unlink()
    with user_error(f"{folder / CONFIG}: do_lower_case: missing"):
        read_hugging_face(folder)
