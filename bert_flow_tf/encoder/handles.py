"""Check and download encoders by name; this module does not load TensorFlow."""

import functools
import pathlib
import re

from bert_flow_tf.common.errors import ArgumentError, UserError, suggest, suggest_file
from bert_flow_tf.common.reading import reading
from bert_flow_tf.common.records import BERT_NAMES

DEMO = "demo"
HUB_HANDLES = {
    short: f"https://tfhub.dev/tensorflow/bert_en_{name}/4" for short, name in BERT_NAMES.items()
}
UNCASED_PREPROCESS = "https://tfhub.dev/tensorflow/bert_en_uncased_preprocess/3"
ENCODER_NAMES = (*HUB_HANDLES, DEMO)
# Nearly all model names without an organisation begin with bert- or distilbert-.
_MODEL_NAME = re.compile(r"(\w[\w.-]*/[\w.-]+|(distil)?bert-[\w.-]+)(@[\w./-]+)?")
# Do not download the weights for other libraries.
_ENCODER_FILES = (
    "*.json",
    "vocab.txt",
    "*/vocab.txt",
    "model*.safetensors",
    "*/model*.safetensors",
)


def check_handle(handle: str | None, argument: str) -> None:
    """Raise `UserError` for an unknown encoder; download Hugging Face models."""
    if not handle or handle in ENCODER_NAMES or "://" in handle or pathlib.Path(handle).exists():
        return
    if pathlib.Path(f"{handle}.index").exists():
        return  # the prefix of a TF1 checkpoint
    if not is_model_name(handle):
        known = (
            f"{', '.join(ENCODER_NAMES)}, a folder, https://… of TF-Hub or ORGANISATION/MODEL "
            "of Hugging Face"
        )
        hint = suggest(handle, ENCODER_NAMES) or suggest_file(handle)
        raise ArgumentError(f"{argument}={handle}: unknown encoder, expected {known}{hint}")
    try:
        downloaded_model(handle)
    except UserError as error:
        raise ArgumentError(f"{argument}={error}{suggest_file(handle)}") from error


def is_model_name(handle: str) -> bool:
    """True for a Hugging Face name: `ORGANISATION/MODEL` or `bert-…`.

    `@REVISION` may follow it.
    """
    path = pathlib.Path(handle)
    # If a folder `encoders` exists, `encoders/mine` is a mistyped path.
    return bool(_MODEL_NAME.fullmatch(handle)) and not (
        len(path.parts) > 1 and path.parent.is_dir()
    )


@functools.cache
def downloaded_model(name: str, patterns: tuple[str, ...] = _ENCODER_FILES) -> pathlib.Path:
    """Download a Hugging Face model, `NAME` or `NAME@REVISION`; return its folder.

    The environment variables of huggingface_hub apply: HF_ENDPOINT, HF_HOME, HF_TOKEN,
    HF_HUB_OFFLINE, …
    """
    # Importing huggingface_hub takes half a second.
    from huggingface_hub import constants, errors, snapshot_download

    model, _, revision = name.partition("@")
    with reading(name, f"a folder or a model of {constants.ENDPOINT}"):
        try:
            return pathlib.Path(
                snapshot_download(model, revision=revision or None, allow_patterns=list(patterns))
            )
        except errors.LocalEntryNotFoundError as error:
            # `reading` would say "no such file" instead of the reason.
            raise OSError(*error.args) from error
