"""The kinds of folders that a conversion writes, the record in an encoder folder, and the user's cache of these."""

import pathlib
from collections.abc import Callable

import msgspec

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import FolderKind
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.files.json_files import read_json
from bert_flow_tf.files.reading import read_file
from bert_flow_tf.files.user_cache import cached_folder
from bert_flow_tf.runs.record import Training

# Of Hugging Face's folders, and of sentence-transformers'.
WEIGHTS_FILE, INDEX_FILE, MODULES_FILE = "model.safetensors", "model.safetensors.index.json", "modules.json"
SOURCE_FILE, BERT_CONFIG_FILE, VOCAB_FILE = "source.json", "bert_config.json", "vocab.txt"
ENCODER_PARTS = ("encoder", "preprocess", VOCAB_FILE, BERT_CONFIG_FILE, SOURCE_FILE)
# In the config.json of a run that was converted, and in the record beside a TF1 checkpoint that was written here.
CONVERTED_KEY, TF1_RECORD_KEY, TF1_RECORD_FILE = "tf1_checkpoint", "run_of_bert_flow_tf", "converted_from.json"


def _has_key(key: str) -> Callable[[pathlib.Path], bool]:
    return lambda path: f'"{key}": '.encode() in read_file(path, "a record of bert_flow_tf")


def is_hugging_face(folder: pathlib.Path) -> bool:
    """Whether a folder is one of Hugging Face's or of sentence-transformers."""
    return any((folder / name).is_file() for name in (WEIGHTS_FILE, INDEX_FILE, "pytorch_model.bin", MODULES_FILE))


ENCODER_FOLDER = FolderKind("an encoder folder", SOURCE_FILE, ENCODER_PARTS)
CONVERTED_RUN = FolderKind(
    "a converted run",
    "config.json",
    ("*.json", "checkpoint", "model.ckpt-*", "*_results.t*", "*_pooled.tsv", "embeddings-*.npy"),
    _has_key(CONVERTED_KEY),
)
TF1_CHECKPOINT = FolderKind(
    "a TF1 checkpoint of a run",
    TF1_RECORD_FILE,
    (TF1_RECORD_FILE, "checkpoint", "model.ckpt-*", VOCAB_FILE, BERT_CONFIG_FILE),
    _has_key(TF1_RECORD_KEY),
)


class EncoderRecord(msgspec.Struct):
    """What `source.json` says that is read back.

    Attributes:
      do_lower_case: whether the vocabulary is uncased.
      started_from: fingerprint of the encoder that has the same graph with other weights; None where there is none.
      training: what the weights learned since; None where it is not recorded.
      pooling, max_seq_length: what a sentence-transformers folder asked for; None where nobody did.
      digests: SHA-256 of the files in the folder, but for the variables, which have checksums of TensorFlow's.
    """

    do_lower_case: bool
    started_from: str | None = None
    training: Training | None = None
    pooling: str | None = None
    max_seq_length: int | None = None
    digests: dict[str, str] = {}


def read_encoder_record(folder: pathlib.Path) -> EncoderRecord | None:
    """The record of an encoder folder; None for a folder without one, as TF-Hub's encoders have.

    Raises:
      UserError: the record cannot be read, or is of another format version.
    """
    path = folder / SOURCE_FILE
    return read_json(path, EncoderRecord, expected="an encoder folder's record") if path.is_file() else None


def check_encoder_folder(folder: pathlib.Path) -> None:
    """Raises `UserError` if a file is not what the folder's record says, or is missing."""
    record = read_encoder_record(folder)
    for name, digest in record.digests.items() if record is not None else ():
        if file_digest(folder / name) != digest:
            raise UserError(
                f"{folder / name}: found other contents than were written, expected SHA-256 {digest}; if the folder is "
                "in the cache, remove it, else make it again"
            )


def cached_encoder(folder: pathlib.Path, build: Callable[[pathlib.Path], object]) -> pathlib.Path:
    """The encoder folder `folder`, made by `build(folder)` where it does not exist; see `cached_folder`."""
    return cached_folder(folder, SOURCE_FILE, build)
