"""Names of files and kinds of folders that conversions read and write."""

import pathlib

import msgspec

from bert_flow_tf.files.atomic import FolderKind
from bert_flow_tf.files.json_files import read_json
from bert_flow_tf.runs.record import Training

# Any of these files shows that a folder comes from Hugging Face or sentence-transformers.
WEIGHTS_FILE, MODULES_FILE = "model.safetensors", "modules.json"
HUGGING_FACE_FILES = (WEIGHTS_FILE, f"{WEIGHTS_FILE}.index.json", "pytorch_model.bin", MODULES_FILE)
SOURCE_FILE, BERT_CONFIG_FILE, VOCAB_FILE = "source.json", "bert_config.json", "vocab.txt"
ENCODER_PARTS = ("encoder", "preprocess", VOCAB_FILE, BERT_CONFIG_FILE, SOURCE_FILE)
# The key marks the config.json of a converted run; the file lies beside a TF1 checkpoint that was written from a run.
CONVERTED_KEY, TF1_RECORD_FILE = "tf1_checkpoint", "converted_from.json"

ENCODER_FOLDER = FolderKind("an encoder folder", SOURCE_FILE, ENCODER_PARTS)
_RUN_FILES = ("*.json", "checkpoint", "model.ckpt-*", "*_results.t*", "*_pooled.tsv", "embeddings-*.npz")
CONVERTED_RUN = FolderKind(
    "a converted run", "config.json", _RUN_FILES, lambda path: f'"{CONVERTED_KEY}": '.encode() in path.read_bytes()
)
_TF1_FILES = (TF1_RECORD_FILE, "checkpoint", "model.ckpt-*", VOCAB_FILE, BERT_CONFIG_FILE)
TF1_CHECKPOINT = FolderKind("a TF1 checkpoint of a run", TF1_RECORD_FILE, _TF1_FILES)


class EncoderRecord(msgspec.Struct):
    """The fields of `source.json` that this package reads."""

    do_lower_case: bool  # True if the vocabulary is uncased
    started_from: str | None = None  # fingerprint of the encoder from which this one was trained
    training: Training | None = None  # the training since then; None if unknown
    pooling: str | None = None  # if converted from a sentence-transformers folder
    max_seq_length: int | None = None  # if converted from a sentence-transformers folder


def read_encoder_record(folder: pathlib.Path) -> EncoderRecord | None:
    """Return an encoder folder's record; None for a folder from TF-Hub."""
    path = folder / SOURCE_FILE
    return read_json(path, EncoderRecord, expected="an encoder folder's record") if path.is_file() else None
