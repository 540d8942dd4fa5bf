"""Export a model in any format, and check the written files."""

import contextlib
import copy
import dataclasses
import itertools
import logging
import os
import pathlib
import pkgutil
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import tensorflow as tf

from bert_flow_tf.common.atomic import locked, new_output
from bert_flow_tf.common.errors import UserError, warn_user
from bert_flow_tf.common.settings import DTYPES
from bert_flow_tf.export.formats import (
    EXPORT_FORMATS,
    INT8,
    ONNX,
    OPENVINO,
    TF_SAVEDMODEL,
    ExportSettings,
    export_path,
)
from bert_flow_tf.model.embedder import Embedder, warn_if_harmful
from bert_flow_tf.model.saved_model import portable_record
from bert_flow_tf.runtime.description import Description
from bert_flow_tf.sample_data import sample_sentences
from bert_flow_tf.vectors.sentence_model import digest_of
from bert_flow_tf.vectors.similarities import cosines
from bert_flow_tf.vectors.texts import sentence_list
from glow.maps import AffineMap, VectorMap
from glow.saved import check_exportable

# Cosines with the model's embeddings are at least this: with bfloat16 of every text, and with int8
# on average, because how much it loses depends on the text. With bfloat16, MiniLM and random
# weights gave 0.999; an export that loses ten times as much fails.
MIN_COSINES = {"bfloat16": 0.99, INT8: 0.95}
# The most texts of the user's own that are checked; without any, int8 is checked on so many others.
_MOST_TEXTS = 200
# A writer takes texts and returns their embeddings as its files compute them, or None if it cannot
# run its files.
_WRITERS = {
    TF_SAVEDMODEL: "served_model:write_savedmodel",
    "sentence-transformers": "sentence_transformers:write_sentence_transformers",
    ONNX: "onnx:write_onnx_folder",
    OPENVINO: "onnx:write_openvino",
}
# These cover an empty text, one word, mixed case, accents, other scripts, and a text that is cut.
CHECKED_SENTENCES = (
    "",
    "Rain.",
    "A small boat crosses the lake at dawn.",
    "The train to the coast leaves at 7:45 p.m., doesn't it?",
    "Señora Müller ordered a crème brûlée",
    "東京 is the capital of Japan",
    "tab\tand\nline break, and an emoji: 🙂",
    "word " * 600,
)


@dataclasses.dataclass(frozen=True)
class Exported:
    """An export, and the differences of its embeddings from the model's.

    Attributes:
      path: the folder; for a SavedModel, the version's.
      max_difference, max_value: largest absolute difference, and the model's largest absolute
        value.
      min_cosine, mean_cosine: smallest and mean cosine with the model's embedding. These are None
        if not checked.
      texts: number of texts that were checked.
    """

    path: pathlib.Path
    max_difference: float | None = None
    max_value: float | None = None
    min_cosine: float | None = None
    mean_cosine: float | None = None
    texts: int = 0


def export_model(
    model: Embedder,
    out_dir: str | os.PathLike,
    settings: ExportSettings,
    *,
    texts: Iterable[str] = (),
    overwrite: bool = False,
) -> Exported:
    """Write a model for other programs, and check the written files.

    A SavedModel has the signatures of `served_model.ServedBertFlow`; its `assets.extra` has the
    `Description` and the requests that a server warms up with. To load it in Python, first `import
    tensorflow_text`, which registers the tokenizer's operations.

    Args:
      model: an `api.BertFlow`.
      out_dir: the folder; for a SavedModel, TensorFlow Serving's base path, which has a folder per
        version.
      texts: texts of the kind that the export will embed; up to 200 of them, of all lengths, are
        checked beside `CHECKED_SENTENCES`.
      overwrite: True to replace this version or folder; a server that has loaded it keeps it.

    Raises:
      UserError: an argument does not fit the model or the format; the folder exists or cannot be
        written; the written files cannot be loaded; or their embeddings differ by more than the
        format's tolerance (for bfloat16 and int8, cosines below `MIN_COSINES`). Nothing is
        written in these cases.
    """
    try:
        # A program would call back into this process, and find nothing in another one.
        check_exportable(model.chain)
    except ValueError as error:
        raise UserError(f"export: {error}") from error
    warn_if_harmful("export", model.learned)
    own = sentence_list(texts)
    # The lock lets a second export into the same folder see the first one's version.
    with locked(out_dir, wait=True):
        path = export_path(out_dir, settings, overwrite=overwrite)
        model = _with_settings(model, settings)
        normalized = settings.normalize or model.normalizes
        checked = checked_texts(settings.dtype, model.max_seq_length, own)
        expected = np.concatenate(
            [
                model.tail(model.chain.transform(pooled.numpy()), normalized or None)
                for pooled in map(model.encoder.embed_tokens, token_batches(model, checked))
            ]
        )
        tolerance = tolerance_of(model.maps, settings)
        description = _describe(
            model, expected, normalized=normalized, dtype=settings.dtype, tolerance=tolerance
        )
        if model.default_prompt and settings.format == TF_SAVEDMODEL:
            prompt = f"{model.default_prompt!r}"
            warn_user(f"export: {settings.format} has no prompts: put {prompt} before each text")
        write = pkgutil.resolve_name(f"bert_flow_tf.export.{_WRITERS[settings.format]}")
        with new_output(path, EXPORT_FORMATS[settings.format], overwrite=overwrite) as folder:
            found = write(model, description, folder, checked)
            if found is None:
                return Exported(path)
            return checked_export(path, found, expected, tolerance, settings.dtype)


def text_batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield two texts at a time.

    A batch of all would need hundreds of megabytes, and single texts are not padded.
    """
    for start in range(0, len(texts), 2):
        yield texts[start : start + 2]


def token_batches(model: Embedder, texts: Sequence[str]) -> Iterator[dict[str, tf.Tensor]]:
    """Yield the tokens of texts, see `text_batches`."""
    return map(model.tokenize, text_batches(texts))


def checked_texts(dtype: str, max_seq_length: int, own: Sequence[str]) -> list[str]:
    """Return the texts whose embeddings are compared: `CHECKED_SENTENCES` and others."""
    if own:
        by_length = sorted(dict.fromkeys(own), key=len)
        count = min(_MOST_TEXTS, len(by_length))
        others = [by_length[i] for i in np.linspace(0, len(by_length) - 1, count, dtype=int)]
    elif dtype == INT8:
        # How much int8 loses depends on the text, so that few texts say little.
        others = _texts_of_all_lengths(max_seq_length)
    else:
        others = []
    return [*CHECKED_SENTENCES, *others]


def _texts_of_all_lengths(most: int) -> list[str]:
    """Return texts of 1 to `most` words, of the sample data."""
    words = iter(" ".join(sample_sentences()).split())
    lengths = np.geomspace(1, most, _MOST_TEXTS).astype(int)
    return [" ".join(itertools.islice(words, length)) for length in lengths]


def _with_settings(model: Embedder, settings: ExportSettings) -> Embedder:
    """Return the model with an export's length and channels, in float32."""
    model = copy.copy(model)
    # Compare with float32 embeddings, even for a bfloat16 model.
    model.encoder = model.encoder.with_dtype(DTYPES[0])
    if settings.max_seq_length is not None:
        model.max_seq_length = settings.max_seq_length
    if settings.low_dim is not None:
        model.low_dim = settings.low_dim
    if settings.truncate_dim is not None:
        model.truncate_dim = settings.truncate_dim
    return model


def _describe(
    model: Embedder, expected: np.ndarray, *, normalized: bool, dtype: str, tolerance: float
) -> Description:
    """Describe an export; `expected` are the embeddings of `CHECKED_SENTENCES`."""
    # A prompt is a stage of its own, which an export's model adds again.
    stages = model.recipe(prompt="", normalize=normalized or None)
    stages[0]["dtype"] = dtype
    return Description(
        max_seq_length=model.max_seq_length,
        embedding_size=model.embedding_size,
        normalized=normalized,
        dtype=dtype,
        probes={text: expected[i].tolist() for i, text in enumerate(CHECKED_SENTENCES[:6]) if text},
        fingerprint=digest_of(
            [stages[0], *model.prompt_recipe(None), *stages[1:]],
        ),
        stages=stages,
        model=msgspec.to_builtins(portable_record(model, model.encoder.fingerprint)),
        prompts=model.prompts,
        default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name,
        tolerance=tolerance,
    )


def tolerance_of(maps: Sequence[VectorMap], settings: ExportSettings) -> float:
    """Return the largest difference allowed, relative to a channel's size."""
    if settings.dtype == INT8:
        # Another processor rounds other values to the next integer.
        return 1e-3
    tolerance = 1e-5 if settings.format in (ONNX, OPENVINO) else 1e-4
    for one in maps:
        if isinstance(one, AffineMap):
            # Whitening multiplies the encoder's rounding errors, of up to 1e-6, by the norms of its
            # columns.
            matrix = one.variables_by_path["matrix"].numpy()
            norms = np.linalg.norm(matrix.astype(np.float64), axis=0)
            tolerance = max(tolerance, 1e-6 * float(norms.max()))
    return tolerance


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Hide TensorFlow's warnings about untraced functions, which do not help users."""
    loggers = [logging.getLogger(name) for name in ("tensorflow", "absl", "tf2onnx")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def checked_export(
    path: pathlib.Path, found: np.ndarray, expected: np.ndarray, tolerance: float, dtype: str
) -> Exported:
    """Return a checked export; raise `UserError` for other embeddings."""
    difference = float(np.abs(found - expected).max())
    largest = float(np.abs(expected).max())
    each = cosines(expected, found)
    cosine = float(each.min())
    mean = float(each.mean())
    # Compare by channel, because a large channel would hide errors in others. NaN and infinity fail
    # both comparisons.
    is_close = (
        np.abs(found - expected) <= tolerance * np.maximum(1.0, np.abs(expected).max(axis=0))
    ).all()
    limit = f"{tolerance:.0e} of a channel's size"
    if dtype in MIN_COSINES:
        is_close = (mean if dtype == INT8 else cosine) >= MIN_COSINES[dtype]
        limit = f"a {'mean ' if dtype == INT8 else ''}cosine of {MIN_COSINES[dtype]} or more"
    if not is_close:
        measured = (
            f"{difference:.1e} for values up to {largest:.1e} (cosine {cosine:.4f}, mean "
            f"{mean:.4f}, {len(each)} texts), expected {limit}"
        )
        raise UserError(
            f"{path}: the written files differ from the model by {measured}; nothing was written"
        )
    return Exported(path, difference, largest, cosine, mean, len(each))
