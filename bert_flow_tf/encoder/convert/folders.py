"""The folders that a conversion writes, an encoder folder's record, and the cache of such folders."""

import os
import pathlib
from collections.abc import Callable

import msgspec

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import FolderKind
from bert_flow_tf.files.json_files import read_json
from bert_flow_tf.files.reading import file_digest
from bert_flow_tf.files.user_cache import cache_root, cached_folder
from bert_flow_tf.runs.record import Training

# In the folders of Hugging Face and sentence-transformers.
WEIGHTS_FILE, MODULES_FILE = "model.safetensors", "modules.json"
TOKENIZER_FILE, TOKENIZER_CONFIG_FILE = "tokenizer.json", "tokenizer_config.json"
_HUGGING_FACE_FILES = (WEIGHTS_FILE, f"{WEIGHTS_FILE}.index.json", "pytorch_model.bin", MODULES_FILE)
SOURCE_FILE, BERT_CONFIG_FILE, VOCAB_FILE = "source.json", "bert_config.json", "vocab.txt"
ENCODER_PARTS = ("encoder", "preprocess", VOCAB_FILE, BERT_CONFIG_FILE, SOURCE_FILE)
# In the config.json of a run that was converted, and in the record beside a TF1 checkpoint that was written here.
CONVERTED_KEY, TF1_RECORD_KEY, TF1_RECORD_FILE = "tf1_checkpoint", "run_of_bert_flow_tf", "converted_from.json"


def _has_key(key: str) -> Callable[[pathlib.Path], bool]:
    return lambda path: f'"{key}": '.encode() in path.read_bytes()


ENCODER_FOLDER = FolderKind("an encoder folder", SOURCE_FILE, ENCODER_PARTS)
_RUN_FILES = ("*.json", "checkpoint", "model.ckpt-*", "*_results.t*", "*_pooled.tsv", "embeddings-*.npy")
CONVERTED_RUN = FolderKind("a converted run", "config.json", _RUN_FILES, _has_key(CONVERTED_KEY))
_TF1_FILES = (TF1_RECORD_FILE, "checkpoint", "model.ckpt-*", VOCAB_FILE, BERT_CONFIG_FILE)
TF1_CHECKPOINT = FolderKind("a TF1 checkpoint of a run", TF1_RECORD_FILE, _TF1_FILES, _has_key(TF1_RECORD_KEY))


class EncoderRecord(msgspec.Struct):
    """The part of `source.json` that is read back.

    Attributes:
      do_lower_case: True if the vocabulary is uncased.
      started_from: fingerprint of the encoder that has the same graph with other weights; None if there is none.
      training: the training since then; None if it is not recorded.
      pooling, max_seq_length: settings of a sentence-transformers folder; None for other sources.
      digests: SHA-256 of the files in the folder, except variables, which have TensorFlow's checksums.
    """

    do_lower_case: bool
    started_from: str | None = None
    training: Training | None = None
    pooling: str | None = None
    max_seq_length: int | None = None
    digests: dict[str, str] = {}


def is_hugging_face(folder: pathlib.Path) -> bool:
    """True if a folder is one of Hugging Face or sentence-transformers."""
    return any((folder / name).is_file() for name in _HUGGING_FACE_FILES)


def read_encoder_record(folder: pathlib.Path) -> EncoderRecord | None:
    """Return the record of an encoder folder; None for a folder without one, such as TF-Hub's."""
    path = folder / SOURCE_FILE
    return read_json(path, EncoderRecord, expected="an encoder folder's record") if path.is_file() else None


def check_encoder_folder(folder: pathlib.Path) -> None:
    """Raise `UserError` if a file of the folder is missing or does not have the recorded digest."""
    record = read_encoder_record(folder)
    for name, digest in record.digests.items() if record is not None else ():
        if file_digest(folder / name) != digest:
            raise UserError(f"{folder / name}: damaged, expected SHA-256 {digest}; remove the folder and make it again")


def cached_encoder(
    key: str, build: Callable[[pathlib.Path], object], cache_dir: str | os.PathLike | None = None
) -> pathlib.Path:
    """Return the encoder folder with this key in the user's cache, made by `build(folder)` if it does not exist."""
    return cached_folder(cache_root(cache_dir) / "encoders" / key, SOURCE_FILE, build)
