"""What a sentence-transformers folder says besides its BERT: the pooling, and how much of a sentence is read."""

import pathlib
from typing import Any

import msgspec

from bert_flow_tf.encoder.convert.folders import MODULES_FILE
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import read_json

BERT_SETTINGS_FILE = "sentence_bert_config.json"
# Its poolings that are here, by their names; cls is the last layer's state, not BERT's pooled output.
_POOLINGS = {"mean": "avg", "cls": "paper-cls"}
_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_DEFAULT_LENGTH = 512  # of BERT
SETTINGS_FILES = (MODULES_FILE, "1_Pooling/config.json", BERT_SETTINGS_FILE)


class SentenceTransformer(msgspec.Struct, frozen=True):
    """What a folder asks for.

    Attributes:
      transformer: path, in the folder, of the folder with BERT.
      pooling, max_seq_length: of its sentences; None for a BERT alone.
    """

    transformer: str = ""
    pooling: str | None = None
    max_seq_length: int | None = None


class _Module(msgspec.Struct):
    type: str
    path: str = ""


def sentence_transformer(folder: pathlib.Path) -> SentenceTransformer:
    """The settings in a folder; of one without `modules.json`, those of a BERT alone.

    The cosines of `BertFlow` are then the library's. A last module that scales embeddings to norm 1 does not change
    them.

    Raises:
      UserError: a file cannot be read, or says what this model cannot do: a module of another kind, another pooling.
    """
    if not (folder / MODULES_FILE).is_file():
        return SentenceTransformer()
    path = folder / MODULES_FILE
    modules = read_json(path, list[_Module], expected="sentence-transformers' modules", versioned=False)
    # The library has moved its classes; their names stay.
    kinds = [module.type.rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UserError(
            f"{path}: found {', '.join(kinds) or 'no modules'}, expected Transformer, Pooling and Normalize"
        )
    transformer, pooling_folder = (module.path for module in modules[:2])
    for name in (transformer, pooling_folder):
        if pathlib.PurePath(name).is_absolute() or ".." in pathlib.PurePath(name).parts:
            raise UserError(f"{path}: path: found {name!r}, expected a folder beside it")
    return SentenceTransformer(
        transformer,
        _pooling(folder / pooling_folder / "config.json"),
        _max_seq_length(folder / transformer),
    )


def _pooling(path: pathlib.Path) -> str:
    settings = read_json(path, dict[str, Any], expected="a pooling's settings", versioned=False)
    modes = [mode for name, mode in _MODES.items() if settings.get(name) is True]
    if isinstance(settings.get("pooling_mode"), str):
        modes = [settings["pooling_mode"]]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise UserError(f"{path}: found pooling {' and '.join(modes) or 'none'}, expected {' or '.join(_POOLINGS)}")
    return _POOLINGS[modes[0]]


def _max_seq_length(folder: pathlib.Path) -> int:
    """Word pieces, as the library takes them: what the folder says, or as many as tokenizer and positions allow."""
    of_bert, of_tokenizer, config = (
        read_json(folder / name, dict[str, Any], expected="a model's settings", versioned=False)
        if (folder / name).is_file()
        else {}
        for name in (BERT_SETTINGS_FILE, "tokenizer_config.json", "config.json")
    )
    if of_bert.get("do_lower_case"):
        raise UserError(
            f"{folder / BERT_SETTINGS_FILE}: do_lower_case: found true, expected false (the tokenizer lower-cases)"
        )
    found = of_bert.get("max_seq_length")
    lengths = [found] if found else [of_tokenizer.get("model_max_length"), config.get("max_position_embeddings")]
    return min((length for length in lengths if isinstance(length, int)), default=_DEFAULT_LENGTH)
