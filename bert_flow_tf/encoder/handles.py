"""Check and download encoders by name; this module does not load TensorFlow."""

import dataclasses
import functools
import pathlib
import re

import msgspec

from bert_flow_tf.errors import ArgumentError, UserError, suggest, suggest_file
from bert_flow_tf.files.reading import reading
from bert_flow_tf.runs.record import BERT_NAMES, EncoderFiles

DEMO = "demo"
HUB_HANDLES = {short: f"https://tfhub.dev/tensorflow/bert_en_{name}/4" for short, name in BERT_NAMES.items()}
UNCASED_PREPROCESS = "https://tfhub.dev/tensorflow/bert_en_uncased_preprocess/3"
ENCODER_NAMES = (*HUB_HANDLES, DEMO)
# Nearly all model names without an organisation begin with bert- or distilbert-.
_MODEL_NAME = re.compile(r"(\w[\w.-]*/[\w.-]+|(distil)?bert-[\w.-]+)(@[\w./-]+)?")
# Do not download the weights for other libraries.
_ENCODER_FILES = ("*.json", "vocab.txt", "*/vocab.txt", "model*.safetensors", "*/model*.safetensors")


def check_handle(handle: str | None, argument: str) -> None:
    """Raise `UserError` for an unknown encoder; download Hugging Face models."""
    if not handle or handle in ENCODER_NAMES or "://" in handle or pathlib.Path(handle).exists():
        return
    if not is_model_name(handle):
        known = f"{', '.join(ENCODER_NAMES)}, a folder, https://… of TF-Hub or ORGANISATION/MODEL of Hugging Face"
        hint = suggest(handle, ENCODER_NAMES) or suggest_file(handle)
        raise ArgumentError(f"{argument}={handle}: unknown encoder, expected {known}{hint}")
    try:
        downloaded_model(handle)
    except UserError as error:
        raise ArgumentError(f"{argument}={error}{suggest_file(handle)}") from error


def is_model_name(handle: str) -> bool:
    """True for a Hugging Face name: `ORGANISATION/MODEL` or `bert-…`, optionally with `@REVISION`."""
    path = pathlib.Path(handle)
    # If a folder `encoders` exists, `encoders/mine` is a mistyped path.
    return bool(_MODEL_NAME.fullmatch(handle)) and not (len(path.parts) > 1 and path.parent.is_dir())


@functools.cache
def downloaded_model(name: str, patterns: tuple[str, ...] = _ENCODER_FILES) -> pathlib.Path:
    """Download a Hugging Face model, `NAME` or `NAME@REVISION`; return its folder.

    The environment variables of huggingface_hub apply: HF_ENDPOINT, HF_HOME, HF_TOKEN, HF_HUB_OFFLINE, …
    """
    # Importing huggingface_hub takes half a second.
    from huggingface_hub import constants, errors, snapshot_download

    model, _, revision = name.partition("@")
    with reading(name, f"a folder or a model of {constants.ENDPOINT}"):
        try:
            return pathlib.Path(snapshot_download(model, revision=revision or None, allow_patterns=list(patterns)))
        except errors.LocalEntryNotFoundError as error:
            # `reading` would say "no such file" instead of the reason.
            raise OSError(*error.args) from error


@dataclasses.dataclass(frozen=True)
class EncoderSource:
    """An encoder and its preprocess model, ready to load.

    Attributes:
      bert_hub: handle for `resolve_encoder`, or a folder's absolute path.
      preprocess_hub: the preprocess model's handle or path; None if `bert_hub` includes it.
      do_lower_case: True if the vocabulary is uncased.
      fingerprint: SHA-256 of weights, graph and vocabulary, equal on every machine. A converted encoder's
        configuration replaces its graph, whose bytes differ in each conversion.
      started_from: fingerprint of the encoder from which this one was trained; None for others.
      encoder_dir, preprocess_dir: the local SavedModels.
    """

    bert_hub: str
    preprocess_hub: str | None
    do_lower_case: bool
    fingerprint: str
    started_from: str | None
    encoder_dir: pathlib.Path = dataclasses.field(compare=False)
    preprocess_dir: pathlib.Path = dataclasses.field(compare=False)

    @property
    def files(self) -> EncoderFiles:
        """The fields that a run's `config.json` records."""
        return msgspec.convert(self, EncoderFiles, from_attributes=True)
