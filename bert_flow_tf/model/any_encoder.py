"""Calibrate embeddings of any encoder: a sentence-transformers model or a function."""

import contextlib
import importlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import tensorflow as tf

from bert_flow_tf.calibration import learning
from bert_flow_tf.calibration.comparison import Comparison
from bert_flow_tf.calibration.history import History, saved_history
from bert_flow_tf.calibration.judgement import Pairs
from bert_flow_tf.calibration.methods import DEFAULT_METHODS, find_method
from bert_flow_tf.calibration.settings import CALIBRATION_FOLDER, FitSettings
from bert_flow_tf.common.atomic import new_file, new_output, output_file
from bert_flow_tf.common.errors import ArgumentError, UserError, check_installed
from bert_flow_tf.common.json_files import read_json, write_json
from bert_flow_tf.common.losses import write_losses
from bert_flow_tf.common.reading import reading
from bert_flow_tf.common.records import CalibrationRecord, Result, Training, made_by
from bert_flow_tf.common.settings import suggesting_arguments
from bert_flow_tf.encoder.convert.folders import DESCRIPTION_FILE, SENTENCE_TRANSFORMERS_EXPORT
from bert_flow_tf.encoder.convert.sentence_modules import (
    NORMALIZE,
    append_modules,
    dense_module,
)
from bert_flow_tf.model.base import CalibratedEncoder, FitOptions, joined
from bert_flow_tf.model.embedder import current_record, record_of_own, warn_if_harmful
from bert_flow_tf.vectors.texts import sentence_list
from glow.calibration import AffineMap, Calibration, Forward, forward_rows
from glow.saved import (
    check_exportable,
    check_savable,
    read_calibration,
    write_calibration,
    write_export,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

RECORD_FILE = "record.json"

# A function from a list of strings to embeddings [n, D], or a `SentenceTransformer`.
Encoder = Any
Self = TypeVar("Self", bound="Calibrated")
_UNKNOWN = CalibrationRecord(config=None, training=Training())


class SavedCalibration(Result, frozen=True, kw_only=True, tag="calibration"):
    flow: CalibrationRecord
    normalize: bool


class Calibrated(CalibratedEncoder):
    """An encoder of another library, whose embeddings pass through a calibration.

    Attributes:
      encoder: the `SentenceTransformer` or function; None after `load_calibration` without one.
      calibration: the flow or affine map.
      record: its method, configuration and training.
      history_: `calibration.history.History` of `calibrate`; after `load_calibration`, its
        losses and its `verdict`.
    """

    def __init__(
        self,
        encoder: Encoder,
        calibration: Calibration | None,
        record: CalibrationRecord,
        history: History | None,
        *,
        normalize: bool = False,
    ) -> None:
        self.encoder = encoder
        self.normalize = normalize
        self._set(calibration, record, history)

    @property
    def calibration(self) -> Calibration:
        """The flow or affine map; raises `UserError` before `fit`."""
        if self._calibration is None:
            raise UserError("calibration: found none, expected one (fit() learns it)")
        return self._calibration

    @calibration.setter
    def calibration(self, calibration: Calibration) -> None:
        self._set(calibration, record_of_own(calibration), None)

    def _set(
        self,
        calibration: Calibration | None,
        record: CalibrationRecord,
        history: History | None,
    ) -> None:
        self._calibration = calibration
        self.record = record
        self.history_ = history
        self._forward: Forward = np.asarray if calibration is None else calibration.fixed_forward()

    def _set_fitted(self: Self, fitted: learning.Fitted) -> Self:
        self._set(joined(fitted.maps), fitted.record, fitted.history)
        return self

    @property
    def may_witness(self) -> bool:  # type: ignore[override]  # the base has a constant
        """True for a transformer; the study of docs/witness.md has no other encoders."""
        modules = self.encoder.children() if hasattr(self.encoder, "children") else ()
        return any(hasattr(module, "auto_model") for module in modules)

    def described(self) -> tuple[None, str]:
        name = getattr(self.encoder, "__name__", type(self.encoder).__name__)
        return None, name

    def encode_pooled(self, sentences: Iterable[str], label: str = "") -> np.ndarray:
        """Return the encoder's own embeddings, float32 [n, D]; `label` is ignored."""
        return _encode(self.encoder, sentences)

    def encode(self, sentences: str | Iterable[str], **options: Any) -> np.ndarray:
        """Return calibrated embeddings, float32 [n, d], or [d] for one string.

        The options are those of the encoder's own `encode`.
        """
        return self._calibrated("encode", sentences, options)

    def encode_query(self, sentences: str | Iterable[str], **options: Any) -> np.ndarray:
        """Return embeddings with the encoder's own prompt of queries, if any."""
        return self._calibrated("encode_query", sentences, options)

    def encode_document(self, sentences: str | Iterable[str], **options: Any) -> np.ndarray:
        """Return embeddings with the encoder's own prompt of documents, if any."""
        return self._calibrated("encode_document", sentences, options)

    def _calibrated(
        self, method: str, sentences: str | Iterable[str], options: dict[str, Any]
    ) -> np.ndarray:
        if self.encoder is None:
            raise UserError(
                "encode: found a calibration without an encoder, expected one in load_calibration"
            )
        single = isinstance(sentences, str)
        texts = [sentences] if isinstance(sentences, str) else sentences
        found = self.transform(_encode(self.encoder, texts, options, method))
        return found[0] if single else found

    def transform(self, embeddings: np.ndarray) -> np.ndarray:
        """Return the encoder's embeddings [n, D] calibrated, float32 [n, d]."""
        z = forward_rows(self._forward, _array(embeddings, self.calibration.event_size))
        return tf.nn.l2_normalize(z, axis=-1).numpy() if self.normalize else z

    def save(self, folder: str | os.PathLike, *, overwrite: bool = False) -> pathlib.Path:
        """Write the calibration, without the encoder; `load_calibration` reads it."""
        with reading(folder, "a calibration that can be saved"):
            check_savable(self.calibration)
        with new_output(folder, CALIBRATION_FOLDER, overwrite=overwrite) as new:
            write_calibration(new, self.calibration)
            write_json(new / RECORD_FILE, self._saved())
            write_losses(new, self.recorded_losses)
        return pathlib.Path(folder)

    def export(
        self, path: str | os.PathLike, format: str | None = None, *, overwrite: bool = False
    ) -> pathlib.Path:
        """Write the calibration for other programs.

        Args:
          path: a file `.npz` or `.onnx`, see `glow.saved.export_calibration`; or, with the format
            "sentence-transformers", a folder with the encoder's modules and the calibration as
            `Dense` modules.

        Raises:
          UserError: the format does not fit, the path exists, or the couplings have no dense
            layers.
        """
        path = pathlib.Path(path)
        with reading(path, "a calibration that can be exported"):
            check_exportable(self.calibration)
        warn_if_harmful("export", self.record)
        if format == "sentence-transformers":
            if not hasattr(self.encoder, "_modules"):
                raise ArgumentError(
                    "format: found sentence-transformers without its model, expected .npz or .onnx"
                )
            with new_output(path, SENTENCE_TRANSFORMERS_EXPORT, overwrite=overwrite) as folder:
                self._export_modules(folder)
            return path
        if format not in (None, path.suffix[1:]) or path.suffix not in (".npz", ".onnx"):
            raise ArgumentError(
                f"format: found {format} for {path}, expected sentence-transformers, .npz or .onnx"
            )
        if path.suffix == ".onnx":
            check_installed("tf2onnx", "onnx", "format", ArgumentError)
        with new_file(output_file(path, overwrite=overwrite)) as new, _layers_needed():
            write_export(self.calibration, new, path.suffix)
        return path

    def faiss_transform(self) -> Any:
        """Return an affine calibration as a transform for `faiss.IndexPreTransform`.

        It is a `faiss.LinearTransform`. `normalize` is not part of it: an index that keeps cosines
        has a `faiss.NormalizationTransform` behind it, see docs/vectors.md.
        """
        check_installed("faiss", "faiss", "faiss_transform", ArgumentError)
        faiss: Any = importlib.import_module("faiss")
        if not isinstance(self.calibration, AffineMap):
            found = f"found {self.record.method}"
            raise ArgumentError(
                f"faiss_transform: {found}, expected whitening or another affine map"
            )
        (layer,) = self.calibration.dense_layers()
        transform = faiss.LinearTransform(*layer.kernel.shape, True)
        faiss.copy_array_to_vector(np.float32(layer.kernel.T).ravel(), transform.A)
        faiss.copy_array_to_vector(np.float32(layer.bias), transform.b)
        transform.is_trained = True
        return transform

    def _export_modules(self, folder: pathlib.Path) -> None:
        """Write the encoder by its library, then the calibration as modules."""
        if getattr(self.encoder, "truncate_dim", None) is not None:
            found = f"found truncate_dim={self.encoder.truncate_dim}"
            raise ArgumentError(f"format: {found}, which no module keeps; expected .npz or .onnx")
        with _layers_needed():
            layers = self.calibration.dense_layers()
        self.encoder.save(str(folder))
        append_modules(folder, [*map(dense_module, layers), *[NORMALIZE] * self.normalize])
        write_json(folder / DESCRIPTION_FILE, self._saved())

    def _saved(self) -> SavedCalibration:
        return SavedCalibration(
            made_by=made_by("calibrate"),
            flow=current_record(self.record, self.calibration),
            normalize=self.normalize,
        )


@suggesting_arguments(Calibrated.fit)
def calibrate(
    encoder: Encoder,
    sentences: Iterable[str],
    *,
    normalize: bool = False,
    **options: "Unpack[FitOptions]",
) -> Calibrated:
    """Learn a calibration of an encoder's embeddings, as `BertFlow.fit` does.

    Args:
      encoder: a `SentenceTransformer` of any architecture, or a function from a list of strings to
        an array [n, D].
      normalize: True to scale calibrated embeddings to norm 1.

    The other arguments and the errors are those of `BertFlow.fit`.

        >>> words = [f"{a}{b}" for a in "abcdefghijklmnop" for b in "qrstuvwxyz"]
        >>> def lengths_and_codes(texts):
        ...     return np.array([[len(text), *map(ord, text)] for text in texts])
        >>> calibrated = calibrate(lengths_and_codes, words, method="whitening")
        >>> calibrated.encode(["at", "by"]).shape
        (2, 3)
    """
    if isinstance(encoder, CalibratedEncoder):
        found = type(encoder).__name__
        raise ArgumentError(f"encoder: found a {found}, which learns a calibration by its own fit")
    learner = Calibrated(encoder, None, _UNKNOWN, None, normalize=normalize)
    return learner.fit(sentences, **options)


def compare(
    encoder: Encoder,
    sentences: Iterable[str],
    methods: Sequence[Any] | Mapping[str, Any] = DEFAULT_METHODS,
    *,
    pairs: Pairs | None = None,
    metric: str | None = None,
    settings: FitSettings | None = None,
    show_progress_bar: bool | None = None,
) -> Comparison:
    """Learn several calibrations of an encoder; recommend one.

    Args:
      encoder: a `BertFlow`, whose flow is ignored, or as in `calibrate`.

    The other arguments, the result and the errors are those of `BertFlow.compare`.

        >>> words = [f"{a}{b}" for a in "abcdefghijklmnop" for b in "qrstuvwxyz"]
        >>> def codes(texts):
        ...     return np.array([[ord(text[0]), ord(text[1])] for text in texts])
        >>> comparison = compare(codes, words, ["auto", "sn", "whitening"])
        >>> [row.method for row in comparison.rows]
        ['none', 'auto', 'sn', 'whitening']
        >>> comparison.recommended
        'none'
    """
    known = isinstance(encoder, CalibratedEncoder)
    learner = encoder if known else Calibrated(encoder, None, _UNKNOWN, None)
    return learner.compare(
        sentences,
        methods,
        pairs=pairs,
        metric=metric,
        settings=settings,
        show_progress_bar=show_progress_bar,
    )


def calibrate_array(
    embeddings: np.ndarray, settings: FitSettings, *, normalize: bool = False
) -> Calibrated:
    """Learn a calibration of embeddings [n, D]; its verdict is "not judged"."""
    fitted = learning.learn(_array(embeddings), find_method(settings.method), settings)
    return Calibrated(None, joined(fitted.maps), fitted.record, fitted.history, normalize=normalize)


def load_calibration(folder: str | os.PathLike, encoder: Encoder = None) -> Calibrated:
    """Load a folder of `Calibrated.save` or `FlowCalibrator.save`.

    Only `encode` needs the encoder.
    """
    with reading(folder, "a calibration"):
        calibration = read_calibration(folder)
    path = pathlib.Path(folder, RECORD_FILE)
    if not path.exists():
        config = getattr(calibration, "config", None)
        return Calibrated(
            encoder, calibration, CalibrationRecord(config=config, training=Training()), None
        )
    record = read_json(path, SavedCalibration, expected="a calibration's record")
    history = saved_history(folder, record.flow.verdict)
    return Calibrated(encoder, calibration, record.flow, history, normalize=record.normalize)


def _encode(
    encoder: Encoder,
    sentences: Iterable[str],
    options: dict[str, Any] | None = None,
    method: str = "encode",
) -> np.ndarray:
    """Return embeddings of an encoder's `method` or `encode`, or of a function."""
    texts = sentence_list(sentences)
    # A `SentenceTransformer` is callable too, on tensors.
    call: Any = getattr(encoder, method, getattr(encoder, "encode", encoder))
    if isinstance(encoder, str) or not callable(call):
        raise ArgumentError(
            f"encoder: found {encoder!r:.40}, expected a SentenceTransformer or a function"
        )
    embeddings = _array(call(texts, **(options or {})))
    if len(embeddings) != len(texts):
        raise UserError(
            f"encoder: found {len(embeddings)} embeddings of {len(texts)} sentences, expected one "
            "each"
        )
    return embeddings


def _array(embeddings: Sequence[Any] | np.ndarray, width: int | None = None) -> np.ndarray:
    """Return float32 [n, D]; raise `UserError` for other shapes or values."""
    with reading("embeddings", "numbers [n, D]"):
        found = np.asarray(embeddings, np.float32)
    if found.ndim != 2 or width not in (None, found.shape[1]):
        raise UserError(
            f"embeddings: found the shape {list(found.shape)}, expected [n, {width or 'D'}]"
        )
    if not np.isfinite(found).all():
        raise UserError("embeddings: found NaN or infinity, expected finite numbers")
    return found


@contextlib.contextmanager
def _layers_needed() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ArgumentError(f"format: {error}, expected .onnx") from error
