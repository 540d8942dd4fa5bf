"""Settings of a sentence-transformers folder: the pooling, and the length of a sentence. Loads no TensorFlow."""

import pathlib
from typing import Any

import msgspec

from bert_flow_tf.encoder.convert.folders import MODULES_FILE, TOKENIZER_CONFIG_FILE
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import read_json

BERT_SETTINGS_FILE = "sentence_bert_config.json"
# The library's poolings by their names here; its cls is the last layer's state, not BERT's pooled output.
_POOLINGS = {"mean": "avg", "cls": "paper-cls"}
_DEFAULT_LENGTH = 512  # of BERT


class SentenceTransformer(msgspec.Struct, frozen=True):
    """The settings of a folder.

    Attributes:
      transformer: path, in the folder, of the folder with BERT.
      pooling, max_seq_length: settings of the sentence embedding; None for a BERT alone.
    """

    transformer: str = ""
    pooling: str | None = None
    max_seq_length: int | None = None


class _Module(msgspec.Struct):
    type: str
    path: str = ""


def sentence_transformer(folder: pathlib.Path) -> SentenceTransformer:
    """Return the settings in a folder; those of a BERT alone if it has no `modules.json`.

    With them, the cosines of `BertFlow` are the library's. A last module that scales embeddings to norm 1 does not
    change cosines.

    Raises:
      UserError: a file cannot be read, or asks for an unknown module or pooling.
    """
    path = folder / MODULES_FILE
    if not path.is_file():
        return SentenceTransformer()
    modules = read_json(path, list[_Module], expected="sentence-transformers' modules", versioned=False)
    # The library has moved its classes between versions; their names stay.
    kinds = [module.type.rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UserError(f"{path}: found modules {kinds}, expected Transformer, Pooling and Normalize")
    bert = folder / modules[0].path
    return SentenceTransformer(
        modules[0].path, _pooling(folder / modules[1].path / "config.json"), _max_seq_length(bert)
    )


def _pooling(path: pathlib.Path) -> str:
    settings = _settings(path)
    # Older versions have a boolean for each mode, such as pooling_mode_mean_tokens.
    named = [
        name.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
        for name, value in settings.items()
        if name.startswith("pooling_mode_") and value is True
    ]
    modes = [settings["pooling_mode"]] if isinstance(settings.get("pooling_mode"), str) else named
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise UserError(f"{path}: pooling_mode: found {modes}, expected {' or '.join(_POOLINGS)}")
    return _POOLINGS[modes[0]]


def _max_seq_length(folder: pathlib.Path) -> int:
    """Return the length as the library does: the folder's, else the least that tokenizer and positions allow."""
    names = (BERT_SETTINGS_FILE, TOKENIZER_CONFIG_FILE, "config.json")
    of_bert, of_tokenizer, config = (_settings(path) if (path := folder / name).is_file() else {} for name in names)
    if of_bert.get("do_lower_case"):
        raise UserError(
            f"{folder / BERT_SETTINGS_FILE}: do_lower_case: found true, expected false (the tokenizer lower-cases)"
        )
    found = of_bert.get("max_seq_length")
    lengths = [found] if found else [of_tokenizer.get("model_max_length"), config.get("max_position_embeddings")]
    return min((length for length in lengths if isinstance(length, int)), default=_DEFAULT_LENGTH)


def _settings(path: pathlib.Path) -> dict[str, Any]:
    return read_json(path, dict[str, Any], expected="a model's settings", versioned=False)
