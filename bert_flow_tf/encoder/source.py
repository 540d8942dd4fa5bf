"""Finds an encoder: from a handle or files to SavedModels on this machine, and a fingerprint of what they compute."""

import hashlib
import http.client
import os
import pathlib
import shutil
import tarfile
import urllib.error
import urllib.request
from typing import Any

import msgspec
import tensorflow as tf
import tensorflow_hub as hub
from absl import flags
from tensorflow_hub.resolver import tfhub_cache_dir

from bert_flow_tf.encoder.convert.bert_config import read_tf1_config
from bert_flow_tf.encoder.convert.folders import (
    BERT_CONFIG_FILE,
    VOCAB_FILE,
    cached_encoder,
    check_encoder_folder,
    is_hugging_face,
    read_encoder_record,
)
from bert_flow_tf.encoder.convert.from_huggingface import convert_hugging_face, hugging_face_digests
from bert_flow_tf.encoder.convert.from_run import config_of_checkpoint, convert_run, refusing_damaged_model
from bert_flow_tf.encoder.convert.from_tf1 import convert_tf1, read_tf1_weights
from bert_flow_tf.encoder.demo import demo_encoder_dir
from bert_flow_tf.encoder.handles import DEMO, HUB_HANDLES, UNCASED_PREPROCESS, EncoderSource, check_handle
from bert_flow_tf.encoder.tokenizer import Tokenizer, vocabulary_asset
from bert_flow_tf.encoder.vocabulary import read_vocabulary
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.checkpoints import Checkpoint, checkpoint_files, checkpoint_prefix
from bert_flow_tf.files.digest import file_digest, update_with_arrays
from bert_flow_tf.files.hugging_face import downloaded_model, is_model_name
from bert_flow_tf.files.json_files import FORMAT_VERSION
from bert_flow_tf.files.locks import locked
from bert_flow_tf.files.user_cache import cache_root, say_download
from bert_flow_tf.runs.record import EncoderFiles, RunConfig

# Version of the fingerprint: bumping it invalidates existing runs and saved models.
_FINGERPRINT_VERSION = 1
# Seconds that a server has to say how large a download is.
_SIZE_TIMEOUT = 5
_Path = str | os.PathLike


def resolve_encoder(
    *,
    bert_hub: _Path | None = None,
    preprocess_hub: _Path | None = None,
    bert_config_file: _Path | None = None,
    vocab_file: _Path | None = None,
    init_checkpoint: _Path | None = None,
    do_lower_case: bool = True,
    cache_dir: _Path | None = None,
    recorded: EncoderFiles | None = None,
) -> EncoderSource:
    """The encoder that the arguments name; downloads or converts it first where needed.

    Args:
      bert_hub: `demo`, `base`, `large`; a TF-Hub handle; the folder of a SavedModel, of a Hugging Face or
        sentence-transformers model, of a TF1 checkpoint, or of `bert-flow convert`; or a model of the Hugging Face Hub,
        `ORGANISATION/MODEL` with `@REVISION` after it where it is not the last one.
      preprocess_hub: handle or folder of the preprocess model; not needed for names, encoder folders, or beside a
        folder `preprocess`.
      bert_config_file, vocab_file, init_checkpoint: the original's trio instead of `bert_hub`. `init_checkpoint` may
        be a TF1 checkpoint or one of a bert_flow_tf run; the latter gives its weights to the encoder of `bert_hub` too.
      do_lower_case: whether the trio's vocabulary is uncased. An encoder from `bert_hub` says so itself, and False
        must agree with it.
      cache_dir: where converted encoders are kept; None is the user's cache folder.
      recorded: what a run or a saved model, which may be somebody else's, says of the encoder. Where its fingerprint is
        another one, no graph of it is loaded; the preprocess model's is not loaded at all.

    Raises:
      UserError: no or two encoders are named, one cannot be reached or read, its parts do not fit, or it is not the
        recorded one.
    """
    if bert_hub and bert_config_file:
        raise ArgumentError("bert_hub: found bert_config_file as well, expected one way to name the encoder")
    if bert_hub and init_checkpoint:
        prefix = checkpoint_prefix(init_checkpoint)
        begun = None if recorded is None else _before_training(recorded, prefix)
        source = _with_run_weights(_from_hub(str(bert_hub), preprocess_hub, cache_dir, begun), prefix, cache_dir)
    elif bert_hub:
        source = _from_hub(str(bert_hub), preprocess_hub, cache_dir, recorded)
    elif bert_config_file or vocab_file or init_checkpoint:
        source = _from_trio(bert_config_file, vocab_file, init_checkpoint, do_lower_case, cache_dir)
    else:
        raise ArgumentError(
            "bert_hub: missing, expected demo, a TF-Hub handle or a folder; or bert_config_file, vocab_file and "
            "init_checkpoint"
        )
    if not do_lower_case and source.do_lower_case:
        raise ArgumentError(
            f"do_lower_case=False: {source.preprocess_hub or source.bert_hub} lower-cases, expected a cased encoder"
        )
    _check_fingerprint(source.bert_hub, source.fingerprint, recorded)
    return source


def _before_training(recorded: EncoderFiles, prefix: pathlib.Path) -> EncoderFiles:
    """The record of the encoder to which the run of this checkpoint gave the weights of the recorded one."""
    run = config_of_checkpoint(prefix)
    # Without `started_from` it is the record of an earlier version, or that of the same encoder.
    fingerprint = recorded.started_from or (recorded if run is None else run.encoder).fingerprint
    return msgspec.structs.replace(recorded, fingerprint=fingerprint)


def _check_fingerprint(bert_hub: str, found: str, recorded: EncoderFiles | None) -> None:
    if recorded is not None and found != recorded.fingerprint:
        raise UserError(
            f"{bert_hub}: found an encoder with fingerprint {found}, expected the recorded one, {recorded.fingerprint}"
        )


def _from_hub(
    bert_hub: str, preprocess_hub: _Path | None, cache_dir: _Path | None, recorded: EncoderFiles | None = None
) -> EncoderSource:
    bert_hub = HUB_HANDLES.get(bert_hub, bert_hub)
    if preprocess_hub is None and bert_hub in HUB_HANDLES.values():
        preprocess_hub = UNCASED_PREPROCESS
    converted = None if bert_hub == DEMO else _converted(bert_hub, cache_dir)
    if converted is not None and preprocess_hub is not None:
        raise ArgumentError(f"preprocess_hub: found {preprocess_hub}, expected none: {bert_hub} has its vocabulary")
    if bert_hub == DEMO:
        encoder_dir = demo_encoder_dir(cache_dir) / "encoder"
    elif converted is not None:
        encoder_dir = converted / "encoder"
        bert_hub = os.path.abspath(bert_hub) if os.path.isdir(bert_hub) else bert_hub
    else:
        bert_hub, encoder_dir = _find(bert_hub, "encoder", "bert_hub", cache_dir)
    beside = encoder_dir.parent / "preprocess"
    if preprocess_hub is not None:
        preprocess_hub, preprocess_dir = _find(str(preprocess_hub), "preprocess", "preprocess_hub", cache_dir)
    elif (beside / "saved_model.pb").is_file():
        preprocess_dir = beside
    else:
        raise ArgumentError(
            f"preprocess_hub: missing, expected the handle or folder of the preprocess model of {bert_hub}"
        )
    for folder in {encoder_dir.parent, preprocess_dir.parent}:
        check_encoder_folder(folder)
    vocab = read_vocabulary(vocabulary_asset(preprocess_dir))
    record = recorded or read_encoder_record(preprocess_dir.parent)
    do_lower_case = _lower_cases(preprocess_dir, vocab) if record is None else record.do_lower_case
    fingerprint = _fingerprint(encoder_dir, Tokenizer(vocab, do_lower_case).fingerprint)
    _check_fingerprint(bert_hub, fingerprint, recorded)
    return EncoderSource(
        bert_hub,
        preprocess_hub,
        do_lower_case,
        fingerprint,
        _started_from(encoder_dir),
        encoder_dir=encoder_dir,
        preprocess_dir=preprocess_dir,
    )


def _converted(handle: str, cache_dir: _Path | None) -> pathlib.Path | None:
    """The encoder folder, in the cache, of a model of Hugging Face or a TF1 checkpoint; None for other handles."""
    check_handle(handle, "bert_hub")
    folder = pathlib.Path(handle)
    if not folder.exists() and is_model_name(handle):
        folder = downloaded_model(handle)
    if is_hugging_face(folder):
        key = hashlib.sha256(f"{FORMAT_VERSION} {sorted(hugging_face_digests(folder).items())}".encode()).hexdigest()
        place = cache_root(cache_dir) / "encoders" / key
        return cached_encoder(place, lambda out: convert_hugging_face(folder, out))
    if (folder / BERT_CONFIG_FILE).is_file() and any(folder.glob("*.index")):
        trio = folder / BERT_CONFIG_FILE, folder / VOCAB_FILE, folder
        return _from_trio(*trio, None, cache_dir).encoder_dir.parent
    return None


def _find(handle: str, part: str, argument: str, cache_dir: _Path | None) -> tuple[str, pathlib.Path]:
    """A handle, or the absolute path of a folder, and where its SavedModel is; TensorFlow Hub downloads a remote one.

    The SavedModel is the folder itself, or the folder `part` in it.
    """
    check_handle(handle, argument)
    folder = pathlib.Path(handle)
    if folder.is_dir():
        handle = str(folder.resolve())
    if (folder / part / "saved_model.pb").is_file():
        return handle, folder / part
    try:
        path = _downloaded(handle, cache_root(cache_dir) / "tfhub")
    except (UserError, OSError, ValueError, tarfile.TarError, tf.errors.OpError) as error:
        reason = " ".join(str(error).split())
        raise ArgumentError(
            f"{argument}={handle}: cannot be reached ({reason}), expected the folder of a local copy "
            f"({argument.upper()} in run_scripts), or demo as bert_hub"
        ) from error
    if not (path / "saved_model.pb").is_file():
        raise ArgumentError(
            f"{argument}={handle}: found no saved_model.pb in {path}, expected a SavedModel, an encoder folder, a "
            "TF-Hub handle, or the folder of a Hugging Face model or of a TF1 checkpoint"
        )
    return handle, path


def _downloaded(handle: str, cache: pathlib.Path) -> pathlib.Path:
    """The folder of a handle's SavedModel, which TensorFlow Hub downloads into the cache if it is not there."""
    # TensorFlow Hub's default, a name in /tmp, may be another user's. Its variable and its flag go before this one.
    flags.FLAGS.set_default("tfhub_cache_dir", str(cache))
    # As TensorFlow Hub calls it.
    place = cache / hashlib.sha1(handle.encode()).hexdigest()

    def left() -> list[pathlib.Path]:
        return [path for pattern in (".lock*", ".*.tmp") for path in cache.glob(f"{place.name}{pattern}")]

    kept_in = pathlib.Path(tfhub_cache_dir() or cache) / place.name
    if handle.startswith(("http://", "https://")) and not kept_in.exists():
        _say_download(handle, kept_in)
    is_own = "://" in handle and tfhub_cache_dir() == str(cache)
    if is_own and (not place.exists() or (left() and os.access(cache, os.W_OK))):
        # Nobody else writes to this cache: what is left is a killed process's, and TensorFlow Hub would wait for it.
        with locked(place, wait=True):
            for path in left():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            # Where its lock cannot be written, TensorFlow Hub tries again for ever.
            probe = place.with_name(f"{place.name}.lock.tmp")
            try:
                probe.write_bytes(bytes(1024))
            finally:
                probe.unlink(missing_ok=True)
            return pathlib.Path(hub.resolve(handle))
    return pathlib.Path(hub.resolve(handle))


def _say_download(handle: str, place: pathlib.Path) -> None:
    """Says what TensorFlow Hub is about to download, and how much; of a server that does not answer it tells itself."""
    size = None
    try:
        # As TensorFlow Hub asks for the archive.
        request = urllib.request.Request(f"{handle}?tf-hub-format=compressed", method="HEAD")
        with urllib.request.urlopen(request, timeout=_SIZE_TIMEOUT) as answer:
            size = int(answer.headers["Content-Length"])
    except (urllib.error.HTTPError, TypeError, ValueError, http.client.HTTPException):
        # It answers, and does not say how large it is.
        pass
    except OSError:
        return
    say_download(handle, size, place)


def _lower_cases(preprocess_dir: pathlib.Path, vocab: list[str]) -> bool:
    """Whether a preprocess model lower-cases, seen from what it does to the vocabulary's own words: it is run."""
    words = [piece for piece in vocab if piece.isascii() and piece.lower() != piece.upper() and piece[0] not in "[#"]
    with refusing_damaged_model(preprocess_dir, "a preprocess model"):
        tokenize = getattr(hub.load(str(preprocess_dir)), "tokenize", None)
        if tokenize is None or not words:
            raise UserError(
                f"{preprocess_dir}: cannot tell whether it lower-cases, expected a part named tokenize and words in "
                "its vocabulary"
            )
        cases = (tf.constant([case(word) for word in words[:1000]]) for case in (str.upper, str.lower))
        upper, lower = (tokenize(case).to_list() for case in cases)
    return upper == lower


def _fingerprint(encoder_dir: pathlib.Path, tokenizer_fingerprint: str) -> str:
    digest = hashlib.sha256(f"encoder {_FINGERPRINT_VERSION} {tokenizer_fingerprint}\n".encode())
    # What determines the graph, whose file differs each time that it is saved.
    config = encoder_dir.parent / BERT_CONFIG_FILE
    if config.is_file():
        graph = file_digest(config)
    else:
        graph = _started_from(encoder_dir) or file_digest(encoder_dir / "saved_model.pb")
    digest.update(graph.encode())
    variables = Checkpoint(encoder_dir / "variables" / "variables")
    # Integers are states of dropout's generators and counters: no part of what the encoder computes.
    names = sorted(name for name, dtype in variables.dtypes.items() if dtype.is_floating)
    update_with_arrays(digest, ((name, variables[name]) for name in names))
    return digest.hexdigest()


def _started_from(encoder_dir: pathlib.Path) -> str | None:
    """The `started_from` of an encoder's record; None without a record."""
    record = read_encoder_record(encoder_dir.parent)
    return None if record is None else record.started_from


def _from_trio(
    config_file: _Path | None,
    vocab_file: _Path | None,
    checkpoint: _Path | None,
    do_lower_case: bool | None,
    cache_dir: _Path | None,
) -> EncoderSource:
    if not (config_file and vocab_file and checkpoint):
        trio = {"bert_config_file": config_file, "vocab_file": vocab_file, "init_checkpoint": checkpoint}
        missing = next(name for name, value in trio.items() if not value)
        message = f"{missing}: missing, expected all of `{'`, `'.join(trio)}`, or `bert_hub`"
        raise ArgumentError(message, arguments=(*trio, "bert_hub"))
    prefix = checkpoint_prefix(checkpoint)
    run = config_of_checkpoint(prefix)
    if run is not None:
        source = recorded_encoder(run, cache_dir)
        if read_vocabulary(vocab_file) != read_vocabulary(vocabulary_asset(source.preprocess_dir)):
            raise ArgumentError(f"vocab_file={vocab_file}: expected the vocabulary of the run {prefix.parent}")
        return _with_run_weights(source, prefix, cache_dir)

    def build(folder: pathlib.Path) -> None:
        convert_tf1(prefix, folder, config_file=config_file, vocab_file=vocab_file, do_lower_case=do_lower_case)

    # Only the encoder's own weights count, not a flow, a classifier or moments that the checkpoint holds as well.
    config = read_tf1_config(config_file)
    made_of = f"{FORMAT_VERSION} {do_lower_case} {file_digest(vocab_file)} {msgspec.structs.asdict(config)}\n"
    key = hashlib.sha256(made_of.encode())
    update_with_arrays(key, sorted(read_tf1_weights(prefix, config).items()))
    folder = cached_encoder(cache_root(cache_dir) / "encoders" / key.hexdigest(), build)
    return _from_hub(str(folder), None, cache_dir)


def recorded_encoder(config: RunConfig, cache_dir: _Path | None = None) -> EncoderSource:
    """The encoder that a run of this configuration started from.

    A converted encoder that is no longer in the cache is made again from what the run's flags named.

    Raises:
      UserError: the encoder cannot be found, or is another one by its fingerprint.
    """
    recorded = config.encoder
    if os.path.isabs(recorded.bert_hub) and not os.path.isdir(recorded.bert_hub):
        flags = config.encoder_flags
        if not flags:
            raise UserError(f"{recorded.bert_hub}: no such folder, expected the encoder of the run")
        # The file may be somebody else's, with other names in it, and with numbers for paths.
        names = ("bert_hub", "preprocess_hub", "bert_config_file", "vocab_file", "init_checkpoint")
        arguments: dict[str, Any] = {name: str(flags[name]) for name in names if flags.get(name)}
        do_lower_case = flags.get("do_lower_case") is not False
        return resolve_encoder(**arguments, do_lower_case=do_lower_case, cache_dir=cache_dir, recorded=recorded)
    return _from_hub(recorded.bert_hub, recorded.preprocess_hub, cache_dir, recorded)


def _with_run_weights(source: EncoderSource, prefix: pathlib.Path, cache_dir: _Path | None) -> EncoderSource:
    """The encoder `source` with the weights of a bert_flow_tf run."""
    config = config_of_checkpoint(prefix)
    if config is None:
        raise ArgumentError(
            f"init_checkpoint={prefix}: found no checkpoint of a bert_flow_tf run, expected one beside bert_hub (a "
            "checkpoint of TF1 takes bert_config_file and vocab_file instead)"
        )
    if not config.encoder_trained:
        if config.encoder.fingerprint == source.fingerprint:
            return source
        # Its encoder may be what an earlier run made of this one.
        frozen = recorded_encoder(config, cache_dir)
        if frozen.started_from == source.fingerprint:
            return frozen
        raise ArgumentError(
            f"init_checkpoint={prefix}: found a run on a frozen encoder, {config.encoder.bert_hub}, expected one on "
            f"{source.bert_hub}"
        )
    key = hashlib.sha256(f"{FORMAT_VERSION} {source.fingerprint}\n".encode())
    for name, path in sorted(checkpoint_files(prefix).items()):
        # Not the checkpoint's own name, which has the number of a step.
        key.update(f"{name.rpartition('.')[2]} {file_digest(path)}\n".encode())
    folder = cache_root(cache_dir) / "encoders" / key.hexdigest()
    cached_encoder(folder, lambda folder: convert_run(prefix, source, folder))
    return _from_hub(str(folder), None, cache_dir)
