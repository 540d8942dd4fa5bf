"""Where an encoder comes from: flags to local SavedModels, and a fingerprint of what determines its numbers."""

import dataclasses
import hashlib
import json
import os
import pathlib
import tarfile

import tensorflow as tf
import tensorflow_hub as hub

from bert_flow_tf.convert.bert_config import read_tf1_config
from bert_flow_tf.convert.cache import cache_root, cached_encoder
from bert_flow_tf.convert.digest import file_digest, update_with_arrays
from bert_flow_tf.convert.encoder_folder import FORMAT_VERSION
from bert_flow_tf.convert.from_run import convert_run, is_run_checkpoint
from bert_flow_tf.convert.from_tf1 import checkpoint_files, checkpoint_prefix, convert_tf1, read_tf1_weights
from bert_flow_tf.demo_encoder import demo_encoder_dir
from bert_flow_tf.errors import UserError
from bert_flow_tf.experiment import read_config
from bert_flow_tf.tokenizer import Tokenizer, read_vocabulary, vocabulary_asset

# Of how a fingerprint is made: raised, it makes strangers of the encoders of all runs and saved models there are.
_FINGERPRINT_VERSION = 1
_UNCASED_PREPROCESS = "https://tfhub.dev/tensorflow/bert_en_uncased_preprocess/3"
# Short name -> TF-Hub handle of the encoder.
HUB_NAMES = {
    "base": "https://tfhub.dev/tensorflow/bert_en_uncased_L-12_H-768_A-12/4",
    "large": "https://tfhub.dev/tensorflow/bert_en_uncased_L-24_H-1024_A-16/4",
}


@dataclasses.dataclass(frozen=True)
class EncoderSource:
    """An encoder and its preprocess model, found and ready to load.

    Attributes:
      bert_hub: handle that `resolve_encoder` takes: `demo`, a TF-Hub handle or a folder's absolute path.
      preprocess_hub: the preprocess model's handle or path; None when `bert_hub` names both.
      do_lower_case: whether the vocabulary is uncased.
      fingerprint: SHA-256, in hex, over weights, graph and vocabulary; the same on every machine and in every folder.
      encoder_dir, preprocess_dir: the SavedModels on this machine.
    """

    bert_hub: str
    preprocess_hub: str | None
    do_lower_case: bool
    fingerprint: str
    encoder_dir: pathlib.Path = dataclasses.field(compare=False)
    preprocess_dir: pathlib.Path = dataclasses.field(compare=False)

    def to_dict(self):
        """dict of `bert_hub`, `preprocess_hub`, `do_lower_case`, `fingerprint`, as a run's `config.json` keeps it."""
        return {
            "bert_hub": self.bert_hub,
            "preprocess_hub": self.preprocess_hub,
            "do_lower_case": self.do_lower_case,
            "fingerprint": self.fingerprint,
        }


def resolve_encoder(
    *,
    bert_hub=None,
    preprocess_hub=None,
    bert_config_file=None,
    vocab_file=None,
    init_checkpoint=None,
    do_lower_case=True,
    cache_dir=None,
):
    """`EncoderSource` of the encoder that the flags name; downloads or converts it first where needed.

    Args:
      bert_hub: `demo`, `base`, `large`, a TF-Hub handle, an encoder folder of `bert-flow convert`, or a
        SavedModel's folder.
      preprocess_hub: handle or folder of the preprocess model; not needed for names, encoder folders, or beside a
        folder `preprocess`.
      bert_config_file, vocab_file, init_checkpoint: the original's trio instead of `bert_hub`. `init_checkpoint` may
        be a TF1 checkpoint or one of a run of ours; the latter gives its weights to the encoder of `bert_hub` as well.
      do_lower_case: whether the trio's vocabulary is uncased. An encoder from `bert_hub` says so itself; False there
        must agree with it.
      cache_dir: where converted encoders are kept; None is the user's cache folder.

    Raises:
      UserError: no or two encoders are named, one cannot be reached or read, or its parts do not fit.
    """
    if bert_hub and bert_config_file:
        raise UserError("--bert_hub and --bert_config_file: both given, expected one way to name the encoder")
    if bert_hub:
        source = _from_hub(str(bert_hub), preprocess_hub, cache_dir)
        if init_checkpoint:
            source = _with_run_weights(source, checkpoint_prefix(init_checkpoint), cache_dir)
    elif bert_config_file or vocab_file or init_checkpoint:
        source = _from_trio(bert_config_file, vocab_file, init_checkpoint, do_lower_case, cache_dir)
    else:
        raise UserError(
            "--bert_hub: missing, expected demo, a TF-Hub handle or a folder; or --bert_config_file, "
            "--vocab_file, --init_checkpoint"
        )
    if not do_lower_case and source.do_lower_case:
        raise UserError(
            f"--do_lower_case=False: {source.preprocess_hub or source.bert_hub} lower-cases, expected a cased encoder"
        )
    return source


def _from_hub(bert_hub, preprocess_hub, cache_dir):
    bert_hub = HUB_NAMES.get(bert_hub, bert_hub)
    if preprocess_hub is None and bert_hub in HUB_NAMES.values():
        preprocess_hub = _UNCASED_PREPROCESS
    folder = demo_encoder_dir(cache_dir) if bert_hub == "demo" else pathlib.Path(bert_hub)
    if bert_hub != "demo" and folder.is_dir():
        bert_hub = str(folder.resolve())
    if (folder / "encoder" / "saved_model.pb").is_file():
        encoder_dir = folder / "encoder"
    else:
        encoder_dir = _reach(bert_hub, "--bert_hub")
    if preprocess_hub is not None:
        preprocess_hub, preprocess_dir = _preprocess(str(preprocess_hub))
    elif (encoder_dir.parent / "preprocess" / "saved_model.pb").is_file():
        preprocess_dir = encoder_dir.parent / "preprocess"
    else:
        raise UserError(
            f"--preprocess_hub: missing, expected the handle or folder of the preprocess model of {bert_hub}"
        )
    return _source(bert_hub, preprocess_hub, encoder_dir, preprocess_dir)


def _preprocess(preprocess_hub):
    folder = pathlib.Path(preprocess_hub)
    if folder.is_dir():
        preprocess_hub = str(folder.resolve())
        if (folder / "preprocess" / "saved_model.pb").is_file():
            return preprocess_hub, folder / "preprocess"
    return preprocess_hub, _reach(preprocess_hub, "--preprocess_hub")


def _source(bert_hub, preprocess_hub, encoder_dir, preprocess_dir):
    vocab = read_vocabulary(vocabulary_asset(preprocess_dir))
    do_lower_case = _lower_cases(preprocess_dir, vocab)
    fingerprint = _fingerprint(encoder_dir, Tokenizer(vocab, do_lower_case).fingerprint)
    return EncoderSource(bert_hub, preprocess_hub, do_lower_case, fingerprint, encoder_dir, preprocess_dir)


def _reach(handle, flag):
    """Folder of the SavedModel that a handle names, downloaded by TensorFlow Hub when it is not local."""
    try:
        path = pathlib.Path(hub.resolve(handle))
    except (OSError, ValueError, tarfile.TarError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{flag}={handle}: cannot be reached ({reason}); set BERT_HUB or --bert_hub to the folder of a "
            f"local copy, or to demo"
        ) from error
    if not (path / "saved_model.pb").is_file():
        raise UserError(
            f"{flag}={handle}: no saved_model.pb in {path}, expected a SavedModel, an encoder folder or a TF-Hub handle"
        )
    return path


def _lower_cases(preprocess_dir, vocab):
    """Whether a preprocess model lower-cases, seen from what it does to the vocabulary's own words."""
    record = preprocess_dir.parent / "source.json"
    if record.is_file():
        return bool(json.loads(record.read_text(encoding="utf-8"))["do_lower_case"])
    words = [piece for piece in vocab if piece.isascii() and piece.lower() != piece.upper() and piece[0] not in "[#"]
    tokenize = getattr(hub.load(str(preprocess_dir)), "tokenize", None)
    if tokenize is None or not words:
        raise UserError(
            f"{preprocess_dir}: cannot tell whether it lower-cases, expected a `tokenize` part and words in its "
            f"vocabulary"
        )
    words = words[:1000]
    upper = tokenize(tf.constant([word.upper() for word in words])).to_list()
    lower = tokenize(tf.constant([word.lower() for word in words])).to_list()
    return upper == lower


def _fingerprint(encoder_dir, tokenizer_fingerprint):
    digest = hashlib.sha256(f"encoder {_FINGERPRINT_VERSION} {tokenizer_fingerprint}\n".encode())
    digest.update(_graph_digest(encoder_dir).encode())
    reader = tf.train.load_checkpoint(str(encoder_dir / "variables" / "variables"))
    # Integers are states of dropout's generators and counters: no part of what the encoder computes.
    names = sorted(name for name, dtype in reader.get_variable_to_dtype_map().items() if dtype.is_floating)
    update_with_arrays(digest, ((name, reader.get_tensor(name)) for name in names))
    return digest.hexdigest()


def _graph_digest(encoder_dir):
    """Digest of what determines the graph; the file of a graph saved again differs from one time to the next."""
    config = encoder_dir.parent / "bert_config.json"
    if config.is_file():
        return file_digest(config)
    return _started_from(encoder_dir) or file_digest(encoder_dir / "saved_model.pb")


def _started_from(encoder_dir):
    """Fingerprint of the encoder whose graph this one has with other weights; None where it is nobody's."""
    record = encoder_dir.parent / "source.json"
    return json.loads(record.read_text(encoding="utf-8")).get("started_from") if record.is_file() else None


def _from_trio(config_file, vocab_file, checkpoint, do_lower_case, cache_dir):
    for flag, value in (
        ("--bert_config_file", config_file),
        ("--vocab_file", vocab_file),
        ("--init_checkpoint", checkpoint),
    ):
        if not value:
            raise UserError(
                f"{flag}: missing, expected all of --bert_config_file, --vocab_file and --init_checkpoint, or "
                f"--bert_hub"
            )
    prefix = checkpoint_prefix(checkpoint)
    if is_run_checkpoint(prefix):
        return _from_run(prefix, vocab_file, cache_dir)

    def build(folder):
        convert_tf1(prefix, folder, config_file=config_file, vocab_file=vocab_file, do_lower_case=do_lower_case)

    # By the encoder's own weights: a flow, a classifier or moments that a checkpoint holds beside it change nothing.
    config = read_tf1_config(config_file)
    key = hashlib.sha256(f"{FORMAT_VERSION} {do_lower_case} {file_digest(vocab_file)} {config.to_dict()}\n".encode())
    update_with_arrays(key, sorted(read_tf1_weights(prefix, config).items()))
    return _from_hub(str(cached_encoder(_cache_folder(cache_dir, key), build)), None, cache_dir)


def recorded_encoder(config, cache_dir=None):
    """`EncoderSource` of the encoder that a run of this configuration started from.

    A converted encoder that is no longer in the cache is made again from what the run's flags named.

    Args:
      config: dictionary as in a run's `config.json`.
      cache_dir: see `resolve_encoder`.

    Raises:
      UserError: the encoder cannot be found, or is another one by its fingerprint.
    """
    recorded = config["encoder"]
    if os.path.isabs(recorded["bert_hub"]) and not os.path.isdir(recorded["bert_hub"]):
        if "encoder_flags" not in config:
            raise UserError(f"{recorded['bert_hub']}: no such folder, expected the encoder of the run")
        source = resolve_encoder(**config["encoder_flags"], cache_dir=cache_dir)
    else:
        source = _from_hub(recorded["bert_hub"], recorded["preprocess_hub"], cache_dir)
    if source.fingerprint != recorded["fingerprint"]:
        raise UserError(
            f"{source.bert_hub}: found an encoder with fingerprint {source.fingerprint}, expected the run's, "
            f"{recorded['fingerprint']}"
        )
    return source


def _from_run(prefix, vocab_file, cache_dir):
    source = recorded_encoder(read_config(prefix.parent), cache_dir)
    if read_vocabulary(vocab_file) != read_vocabulary(vocabulary_asset(source.preprocess_dir)):
        raise UserError(f"--vocab_file={vocab_file}: another vocabulary than that of the run {prefix.parent}")
    return _with_run_weights(source, prefix, cache_dir)


def _with_run_weights(source, prefix, cache_dir):
    """`EncoderSource` of the encoder `source` with the weights of a run of ours."""
    if not is_run_checkpoint(prefix):
        raise UserError(
            f"--init_checkpoint={prefix}: no checkpoint of a run of ours, expected one with --bert_hub, or "
            f"--bert_config_file and --vocab_file instead of --bert_hub"
        )
    config = read_config(prefix.parent)
    if not config["encoder_trained"]:
        if config["encoder"]["fingerprint"] == source.fingerprint:
            return source
        # Its encoder may be what an earlier run made of this one.
        frozen = recorded_encoder(config, cache_dir)
        if _started_from(frozen.encoder_dir) == source.fingerprint:
            return frozen
        raise UserError(
            f"--init_checkpoint={prefix}: a run on a frozen encoder, {config['encoder']['bert_hub']}, expected "
            f"one on {source.bert_hub}"
        )
    key = hashlib.sha256(f"{FORMAT_VERSION} {source.fingerprint}\n".encode())
    for name, path in sorted(checkpoint_files(prefix).items()):
        # A checkpoint's own name, which training numbers, says nothing about what is in it.
        key.update(f"{name.rpartition('.')[2]} {file_digest(path)}\n".encode())
    folder = cached_encoder(_cache_folder(cache_dir, key), lambda folder: convert_run(prefix, source, folder))
    return _from_hub(str(folder), None, cache_dir)


def _cache_folder(cache_dir, key):
    return cache_root(cache_dir) / "encoders" / key.hexdigest()
