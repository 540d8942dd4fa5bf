"""The encoders that have short names, and what is known of an encoder once it is found."""

import dataclasses
import pathlib

import msgspec

from bert_flow_tf.errors import ArgumentError, UserError, nearest, nearest_file
from bert_flow_tf.files.hugging_face import downloaded_model, is_model_name
from bert_flow_tf.runs.record import BERT_NAMES, EncoderFiles

DEMO = "demo"
# Short name -> TF-Hub handle of that encoder.
HUB_HANDLES = {short: f"https://tfhub.dev/tensorflow/bert_en_{name}/4" for short, name in BERT_NAMES.items()}
UNCASED_PREPROCESS = "https://tfhub.dev/tensorflow/bert_en_uncased_preprocess/3"
ENCODER_NAMES = (*HUB_HANDLES, DEMO)


def check_handle(handle: str | None, argument: str) -> None:
    """Raises `UserError` unless the argument, if it has a value, is a known name, a URL or a file that exists.

    A model of the Hugging Face Hub is downloaded.
    """
    if not handle or handle in ENCODER_NAMES or "://" in handle or pathlib.Path(handle).exists():
        return
    if not is_model_name(handle):
        raise ArgumentError(
            f"{argument}={handle}: no such folder, expected {', '.join(ENCODER_NAMES)}, a TF-Hub handle (https://…), a "
            "model of the Hugging Face Hub (ORGANISATION/MODEL) or a folder"
            f"{nearest(handle, ENCODER_NAMES) or nearest_file(handle)}"
        )
    try:
        downloaded_model(handle)
    except UserError as error:
        raise ArgumentError(f"{argument}={error}{nearest_file(handle)}") from error


@dataclasses.dataclass(frozen=True)
class EncoderSource:
    """An encoder and its preprocess model, found and ready to load.

    Attributes:
      bert_hub: handle that `resolve_encoder` takes: `demo`, a TF-Hub handle, a model of the Hugging Face Hub or a
        folder's absolute path.
      preprocess_hub: the preprocess model's handle or path; None when `bert_hub` names both.
      do_lower_case: whether the vocabulary is uncased.
      fingerprint: SHA-256, in hex, over weights, graph and vocabulary; the same on every machine and in every folder.
        Of a converted encoder's graph it covers the configuration, since a conversion writes other bytes every time.
      started_from: fingerprint of the encoder that has the same graph with other weights; None where there is none.
      encoder_dir, preprocess_dir: the SavedModels on this machine.
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
        """What a run's `config.json` keeps of it."""
        return msgspec.convert(self, EncoderFiles, from_attributes=True)
