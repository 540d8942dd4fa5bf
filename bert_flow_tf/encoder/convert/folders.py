"""Names of files and kinds of folders that conversions read and write."""

import pathlib
from typing import Annotated, Any, Literal

import msgspec

from bert_flow_tf.common.atomic import FolderKind
from bert_flow_tf.common.json_files import read_json
from bert_flow_tf.common.version import DESCRIPTION_FILE, TOKENIZER_FILE
from bert_flow_tf.encoder.weights import SourceRecord

# Any of these files shows that a folder comes from Hugging Face or sentence-transformers.
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
MODULES_FILE = "modules.json"
HUGGING_FACE_FILES = (WEIGHTS_FILE, f"{WEIGHTS_FILE}.index.json", "pytorch_model.bin", MODULES_FILE)
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
BERT_SETTINGS_FILE = "sentence_bert_config.json"
SENTENCE_SETTINGS_FILE = "config_sentence_transformers.json"
SENTENCE_SETTINGS = ("prompts", "default_prompt_name", "similarity_fn_name")
SOURCE_FILE = "source.json"
BERT_CONFIG_FILE = "bert_config.json"
VOCAB_FILE = "vocab.txt"
_ENCODER_FILES = (
    CONFIG_FILE,
    WEIGHTS_FILE,
    VOCAB_FILE,
    TOKENIZER_FILE,
    TOKENIZER_CONFIG_FILE,
    SOURCE_FILE,
)
# The key marks the config.json of a converted run; the file lies beside a TF1 checkpoint that was
# written from a run.
CONVERTED_KEY = "tf1_checkpoint"
TF1_RECORD_FILE = "converted_from.json"
TF_HUB_RECORD_FILE = "exported_from.json"

ENCODER_FOLDER = FolderKind(
    "an encoder folder",
    SOURCE_FILE,
    (
        *_ENCODER_FILES,
        MODULES_FILE,
        BERT_SETTINGS_FILE,
        SENTENCE_SETTINGS_FILE,
        "1_Pooling",
        "2_Normalize",
    ),
)
# The library itself may have written the model, with its tokenizer's files. Without an export's
# description, it is a model that the user has got from elsewhere.
SENTENCE_TRANSFORMERS_EXPORT = FolderKind(
    "an export for sentence-transformers",
    MODULES_FILE,
    ("*.json", "*.txt", "*.model", "README.md", "*.safetensors", "[0-9]*_*"),
    lambda path: path.with_name(DESCRIPTION_FILE).is_file(),
)
TF_HUB_FOLDER = FolderKind(
    "an export for TF-Hub", TF_HUB_RECORD_FILE, (TF_HUB_RECORD_FILE, "encoder", "preprocess")
)
_RUN_FILES = (
    "*.json",
    "checkpoint",
    "model.ckpt-*",
    "*_results.t*",
    "*_pooled.tsv",
    "embeddings-*.npz",
)
CONVERTED_RUN = FolderKind(
    "a converted run",
    CONFIG_FILE,
    _RUN_FILES,
    lambda path: f'"{CONVERTED_KEY}": '.encode() in path.read_bytes(),
)
_TF1_FILES = (TF1_RECORD_FILE, "checkpoint", "model.ckpt-*", VOCAB_FILE, BERT_CONFIG_FILE)
TF1_CHECKPOINT = FolderKind("a TF1 checkpoint of a run", TF1_RECORD_FILE, _TF1_FILES)


def read_encoder_record(folder: pathlib.Path) -> SourceRecord | None:
    """Return an encoder folder's record; None for other folders."""
    path = folder / SOURCE_FILE
    return (
        read_json(path, SourceRecord, expected="an encoder folder's record")
        if path.is_file()
        else None
    )


# These arguments of the libraries change no embedding but by rounding; any others are refused.
_Arguments = (
    dict[
        Literal["attn_implementation", "dtype", "revision", "torch_dtype", "trust_remote_code"], Any
    ]
    | None
)
_None = Annotated[dict, msgspec.Meta(max_length=0)] | None


class ForeignSettings(msgspec.Struct, frozen=True):
    """The fields that are read of other libraries' JSON files.

    A field of only one value is supported with this value only.
    """

    # config.json
    is_decoder: bool = False
    quantization_config: None = None
    model_type: str = "bert"
    max_position_embeddings: int | None = None
    # tokenizer_config.json; the class may also be in config.json
    padding_side: Literal["right"] = "right"
    truncation_side: Literal["right"] = "right"
    tokenizer_class: str | None = None
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    model_max_length: int | float | None = None
    added_tokens_decoder: dict[int, dict[str, Any]] = {}
    # sentence-transformers, with the old and the new names of arguments
    model_args: _Arguments = None
    model_kwargs: _Arguments = None
    config_args: _None = None
    config_kwargs: _None = None
    tokenizer_args: _None = None
    processor_kwargs: _None = None
    truncate_dim: None = None
    max_seq_length: int | None = None
    include_prompt: bool = True
    pooling_mode: str | list[str] | None = None
    prompts: dict[str, str] | None = None
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None


def read_settings(path: pathlib.Path) -> ForeignSettings:
    """Return a file's settings; the defaults without the file."""
    if not path.is_file():
        return ForeignSettings()
    return read_json(path, ForeignSettings, expected="a model's settings", versioned=False)
