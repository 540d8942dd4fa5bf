"""Calibrate embeddings of any encoder: a sentence-transformers model or a function."""

import contextlib
import copy
import importlib
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from bert_flow_tf.calibration import learning
from bert_flow_tf.calibration.comparison import Comparison
from bert_flow_tf.calibration.history import History, saved_history
from bert_flow_tf.calibration.judgement import Pairs
from bert_flow_tf.calibration.methods import find_method
from bert_flow_tf.calibration.settings import CALIBRATION_FOLDER, DEFAULT_METHODS, FitSettings
from bert_flow_tf.common.atomic import new_file, new_output, output_file
from bert_flow_tf.common.errors import ArgumentError, UserError, check_installed
from bert_flow_tf.common.json_files import read_json, write_json
from bert_flow_tf.common.losses import write_losses
from bert_flow_tf.common.reading import reading
from bert_flow_tf.common.records import (
    CalibrationRecord,
    EncoderRecord,
    ModelRecord,
    Result,
    Training,
    made_by,
)
from bert_flow_tf.common.settings import suggesting_arguments
from bert_flow_tf.common.version import DESCRIPTION_FILE
from bert_flow_tf.encoder.convert.folders import (
    SENTENCE_SETTINGS_FILE,
    SENTENCE_TRANSFORMERS_EXPORT,
)
from bert_flow_tf.encoder.convert.sentence_modules import (
    NORMALIZE,
    append_modules,
    dense_module,
)
from bert_flow_tf.model.base import CalibratedEncoder, FitOptions
from bert_flow_tf.model.embedder import (
    checked_map,
    config_of,
    flat,
    record_of_own,
    warn_if_harmful,
)
from bert_flow_tf.vectors.sentence_model import (
    DOCUMENT_PROMPTS,
    QUERY_PROMPTS,
    NoMaps,
    Sentences,
    first_prompt,
)
from bert_flow_tf.vectors.tail import Tail
from bert_flow_tf.vectors.texts import sentence_list
from glow.chain import Chain
from glow.maps import AffineMap, VectorMap
from glow.number_types import is_whole_number
from glow.saved import check_exportable, read_maps, write_export, write_maps

if TYPE_CHECKING:
    from typing_extensions import Unpack

RECORD_FILE = "record.json"

# A function from a list of strings to embeddings [n, D], or a `SentenceTransformer`.
Encoder = Any
Self = TypeVar("Self", bound="Calibrated")
_UNKNOWN = CalibrationRecord(config=None, training=Training())


class SavedCalibration(Result, frozen=True, kw_only=True, tag="calibration"):
    """The file `record.json`; without prompts or a function, the encoder's own hold."""

    flow: CalibrationRecord
    normalize: bool
    truncate_dim: int | None = None
    prompts: dict[str, str] | None = None
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None


class LibraryEncoder:
    """A stage for an encoder of another library, or a function.

    Args:
      given: a `SentenceTransformer`, a function from a list of strings to embeddings [n, D], or
        None for vectors that are there.
      method: the library's method that encodes.
    """

    def __init__(self, given: Encoder, method: str = "encode") -> None:
        self.given = given
        self.method = method
        if hasattr(given, "tokenize"):
            self.tokenize = given.tokenize

    @property
    def recipe(self) -> dict[str, Any]:
        """Raise `ValueError`, because nothing identifies another library's weights."""
        raise ValueError(f"found {self.words}, an encoder of another library, which has none")

    @property
    def prompts(self) -> dict[str, str]:
        """The library's own prompts by name."""
        return dict(getattr(self.given, "prompts", None) or {})

    @property
    def default_prompt_name(self) -> str | None:
        """The name of the library's own default prompt."""
        return getattr(self.given, "default_prompt_name", None)

    @property
    def default_prompt(self) -> str:
        """The text of the library's own default prompt, perhaps empty."""
        return self.prompts.get(self.default_prompt_name or "", "")

    @property
    def similarity_fn_name(self) -> str:
        """The library's own similarity function."""
        return str(getattr(self.given, "similarity_fn_name", None) or "cosine")

    @property
    def words(self) -> str:
        """The encoder's name."""
        return str(getattr(self.given, "__name__", type(self.given).__name__))

    def encode(self, texts: list[str], options: dict[str, Any]) -> np.ndarray:
        """Return the vectors, float32 [n, D], of the library's `method` or `encode`.

        Raises:
          ArgumentError: there is no encoder, or a function gets an option.
          UserError: it gives other vectors than one of finite numbers for each text.
        """
        if self.given is None:
            raise UserError(
                "encode: found a calibration without an encoder, expected one in load_calibration"
            )
        # A `SentenceTransformer` is callable too, on tensors.
        encode: Any = getattr(self.given, self.method, getattr(self.given, "encode", None))
        if encode is None and options:
            raise ArgumentError(
                f"{next(iter(options))}: found with a function as encoder, which takes texts alone"
            )
        encode = encode or self.given
        if isinstance(self.given, str) or not callable(encode):
            raise ArgumentError(
                f"encoder: found {self.given!r:.40}, expected a SentenceTransformer or a function"
            )
        embeddings = _array(encode(texts, **options))
        if len(embeddings) != len(texts):
            raise UserError(
                f"encoder: found {len(embeddings)} embeddings of {len(texts)} sentences, expected "
                "one each"
            )
        return embeddings


class Calibrated(CalibratedEncoder):
    """An encoder of another library, whose embeddings pass through a calibration.

    It has the methods of `BertFlow` that need no tokens. Options of what goes in (a prompt, the
    batch size, a bar, the device) are passed to the library's encoder; options of what comes out
    are applied after the calibration.

    Attributes:
      encoder: the stage, whose `given` is the `SentenceTransformer` or function.
      maps: the flow or affine maps.
      record: their method, configuration and training.
      history_: `calibration.history.History` of `calibrate`; after `load_calibration`, its
        losses and its `verdict`.
    """

    encoder: LibraryEncoder
    chain: Any

    def __init__(
        self,
        encoder: Encoder,
        maps: Sequence[VectorMap] = (),
        record: CalibrationRecord = _UNKNOWN,
        history: History | None = None,
        *,
        normalize: bool = False,
        truncate_dim: int | None = None,
        prompts: dict[str, str] | None = None,
        default_prompt_name: str | None = None,
        similarity_fn_name: str | None = None,
    ) -> None:
        self.encoder = encoder if isinstance(encoder, LibraryEncoder) else LibraryEncoder(encoder)
        self.normalize = normalize
        if prompts is None:
            prompts = self.encoder.prompts
            default_prompt_name = self.encoder.default_prompt_name
        self.set_prompts(prompts, default_prompt_name)
        self._similarity_fn_name = similarity_fn_name or self.encoder.similarity_fn_name
        self._set(maps, record, history, truncate_dim)

    def _set(
        self,
        maps: Sequence[VectorMap],
        record: CalibrationRecord,
        history: History | None,
        truncate_dim: int | None,
    ) -> None:
        self.chain = Chain(maps, maps[0].event_size) if maps else NoMaps()
        self.record = record
        self.history_ = history
        self.tail = Tail(
            width=_width_after(maps), normalizes=self.normalize, truncate_dim=truncate_dim
        )

    @property
    def maps(self) -> list[VectorMap]:
        """The maps, in order. Settable."""
        return list(self.chain.maps) if isinstance(self.chain, Chain) else []

    @maps.setter
    def maps(self, maps: Sequence[VectorMap]) -> None:
        width = None
        for one in maps:
            width = checked_map(one, width).output_size
        self._set_maps(maps, record_of_own(maps) or _UNKNOWN, None)

    def _set_maps(
        self, maps: Sequence[VectorMap], record: CalibrationRecord, history: History | None
    ) -> None:
        """Set other maps; a `truncate_dim` above their channels is dropped."""
        self._set(maps, record, history, self.truncation_of(_width_after(maps)))

    @property
    def calibration(self) -> Any:
        """The only map, or the maps' `Chain`. Settable.

        Raises `UserError` before `fit`.
        """
        if not self.maps:
            raise UserError("calibration: found none, expected one (fit() learns it)")
        return self.maps[0] if len(self.maps) == 1 else self.chain

    @calibration.setter
    def calibration(self, calibration: VectorMap) -> None:
        self.maps = flat(calibration)

    def state(self) -> dict[str, Any]:
        """Return all that makes this model, as the arguments of its class."""
        return {
            "encoder": self.encoder.given,
            "maps": self.maps,
            "record": self.record,
            "history": self.history_,
            "normalize": self.normalize,
            "truncate_dim": self.truncate_dim,
            "prompts": self.prompts,
            "default_prompt_name": self.default_prompt_name,
            "similarity_fn_name": self.similarity_fn_name,
        }

    def _set_fitted(self: Self, fitted: learning.Fitted) -> Self:
        self._set_maps(fitted.maps, fitted.record, fitted.history)
        return self

    @property
    def may_witness(self) -> bool:  # type: ignore[override]  # the base has a constant
        """True for a transformer; the study of docs/witness.md has no other encoders."""
        given = self.encoder.given
        modules = given.children() if hasattr(given, "children") else ()
        return any(hasattr(module, "auto_model") for module in modules)

    @property
    def model_record(self) -> ModelRecord:
        """The record of results, with the encoder by its name."""
        origin = EncoderRecord(name=None, handle=self.encoder.words, fingerprint=None, weights=None)
        length = getattr(self.encoder.given, "max_seq_length", None)
        return ModelRecord(
            encoder=origin,
            pooling="its own pooling",
            max_seq_length=length if is_whole_number(length) else 1,
            truncate_dim=self.truncate_dim,
            flow=self.record if self.maps else None,
        )

    def described(self) -> tuple[None, str]:
        return None, self.encoder.words

    def encode_pooled(self, sentences: Sentences, **options: Any) -> np.ndarray:
        """Return the encoder's own embeddings, float32 [n, D] or [D].

        The library gets the options that are not None, but no `label`: it names its bar.
        """
        if options.get("prompt") is None:
            options["prompt"] = self.prompt_of()
        given = {
            name: value for name, value in options.items() if value is not None and name != "label"
        }
        texts = sentence_list([sentences] if isinstance(sentences, str) else sentences)
        found = self.encoder.encode(texts, given)
        return found[0] if isinstance(sentences, str) else found

    def prompt_of(self, name: str | None = None) -> Any:
        """Return the prompt of a name; None for the library's own default."""
        text = super().prompt_of(name)
        return None if name is None and text == self.encoder.default_prompt else text

    def encode_query(self, sentences: Sentences, **options: Any) -> Any:
        """Return embeddings of the library's `encode_query`, with its prompt of queries."""
        return self._by_method("encode_query", QUERY_PROMPTS, sentences, options)

    def encode_document(self, sentences: Sentences, **options: Any) -> Any:
        """Return embeddings of the library's `encode_document`, with its prompt, if any."""
        return self._by_method("encode_document", DOCUMENT_PROMPTS, sentences, options)

    def _by_method(
        self, method: str, names: Sequence[str], sentences: Sentences, options: dict[str, Any]
    ) -> Any:
        """Call `encode` of a copy whose encoder has another method."""
        other = copy.copy(self)
        other.encoder = LibraryEncoder(self.encoder.given, method)
        prompt = first_prompt(self.prompts, names)
        if prompt == first_prompt(self.encoder.prompts, names):
            # The library's method puts it there.
            return other.encode(sentences, **options)
        return other._encode_with(prompt, sentences, options)

    def transform(self, X: Any) -> Any:
        """Return embeddings [n, D] calibrated, float32 [n, d]; encode strings."""
        if isinstance(X, np.ndarray) and X.dtype.kind in "fiu":
            return self._contained(X, self._transformed)
        return super().transform(X)

    def _transformed(self, X: np.ndarray) -> np.ndarray:
        return self.tail(self._checked_chain().transform(_array(X, self.chain.event_size)))

    def _checked_chain(self) -> Chain:
        assert self.calibration is not None, "the property raises an error without one"
        return self.chain

    def save(self, folder: str | os.PathLike, *, overwrite: bool = False) -> pathlib.Path:
        """Write the calibration, without the encoder; `load_calibration` reads it."""
        assert self.calibration is not None, "the property raises an error without one"
        with new_output(folder, CALIBRATION_FOLDER, overwrite=overwrite) as new:
            try:
                write_maps(new, self.maps)
            except ValueError as error:
                raise UserError(f"save: {error}") from error
            write_json(new / RECORD_FILE, self._saved())
            write_losses(new, self.recorded_losses)
        return pathlib.Path(folder)

    def export(
        self,
        path: str | os.PathLike,
        format: str | None = None,
        *,
        dtype: str = "float32",
        overwrite: bool = False,
    ) -> pathlib.Path:
        """Write the calibration for other programs.

        Args:
          path: a file `.npz` or `.onnx`, see `glow.saved.export_calibration`, of the maps and
            `truncate_dim`, without `normalize`; or, with the format
            "sentence-transformers", a folder with the encoder's modules and the calibration as
            `Dense` modules; or, with the format "onnx", a folder with encoder, calibration and
            tokenizer, which `open_export` opens.
          dtype: "float32", or "int8" for the matrices of a folder in ONNX.

        Raises:
          UserError: the format does not fit, the path exists, or the couplings have no dense
            layers.
        """
        path = pathlib.Path(path)
        with reading(path, "a calibration that can be exported"):
            check_exportable(self._checked_chain())
        warn_if_harmful("export", self.record)
        if format == "onnx" and path.suffix not in (".npz", ".onnx"):
            from bert_flow_tf.export.library_model import export_library_model

            return export_library_model(self, path, dtype, overwrite=overwrite).path
        if dtype != "float32":
            raise ArgumentError(f"dtype: found {dtype}, expected float32 but in a folder of ONNX")
        if format == "sentence-transformers":
            if not hasattr(self.encoder.given, "_modules"):
                raise ArgumentError(
                    "format: found sentence-transformers without its model, expected .npz or .onnx"
                )
            with new_output(path, SENTENCE_TRANSFORMERS_EXPORT, overwrite=overwrite) as folder:
                self._export_modules(folder)
            return path
        if format not in (None, path.suffix[1:]) or path.suffix not in (".npz", ".onnx"):
            raise ArgumentError(
                f"format: found {format} for {path}, expected sentence-transformers, "
                "onnx, .npz or .onnx"
            )
        if path.suffix == ".onnx":
            check_installed("tf2onnx", "onnx", "format", ArgumentError)
        with new_file(output_file(path, overwrite=overwrite)) as new, _layers_needed():
            write_export(self._cut_chain(), new, path.suffix)
        return path

    def faiss_transform(self) -> Any:
        """Return an affine calibration as a transform for `faiss.IndexPreTransform`.

        It is a `faiss.LinearTransform`. `normalize` is not part of it: an index that keeps cosines
        has a `faiss.NormalizationTransform` behind it, see docs/vectors.md.
        """
        chain = self._cut_chain()
        check_installed("faiss", "faiss", "faiss_transform", ArgumentError)
        faiss: Any = importlib.import_module("faiss")
        if not all(isinstance(one, AffineMap) for one in self.maps):
            found = f"found {self.record.method}"
            raise ArgumentError(
                f"faiss_transform: {found}, expected whitening or another affine map"
            )
        (layer,) = chain.dense_layers()
        transform = faiss.LinearTransform(*layer.kernel.shape, True)
        faiss.copy_array_to_vector(np.float32(layer.kernel.T).ravel(), transform.A)
        faiss.copy_array_to_vector(np.float32(layer.bias), transform.b)
        transform.is_trained = True
        return transform

    def _export_modules(self, folder: pathlib.Path) -> None:
        """Write the encoder by its library, then the calibration as modules."""
        given = self.encoder.given
        if getattr(given, "truncate_dim", None) is not None:
            found = f"found truncate_dim={given.truncate_dim}"
            raise ArgumentError(f"format: {found}, which no module keeps; expected .npz or .onnx")
        # The norm comes before the truncation.
        chain = self.chain if self.normalize else self._cut_chain()
        with _layers_needed():
            modules = [dense_module(layer) for layer in chain.dense_layers()]
        if self.normalize:
            modules.append(NORMALIZE)
            if self.truncate_dim is not None:
                modules += [dense_module(layer) for layer in self._cut().dense_layers()]
        given.save(str(folder))
        append_modules(folder, modules)
        if own := self._own_settings():
            path = folder / SENTENCE_SETTINGS_FILE
            kept = read_json(path, dict[str, Any], expected="settings", versioned=False)
            write_json(path, kept | own)
        write_json(folder / DESCRIPTION_FILE, self._saved())

    def _cut(self) -> AffineMap:
        """Return the truncation as a map."""
        width = self.chain.output_size
        return AffineMap(width, matrix=np.eye(width, self.tail.size))

    def _cut_chain(self) -> Chain:
        """Return the maps and the truncation."""
        chain = self._checked_chain()
        if self.truncate_dim is None:
            return chain
        return Chain([*chain.maps, self._cut()], chain.event_size)

    def _saved(self) -> SavedCalibration:
        return SavedCalibration(
            made_by=made_by("calibrate"),
            flow=msgspec.structs.replace(self.record, config=config_of(self.maps)),
            normalize=self.normalize,
            truncate_dim=self.truncate_dim,
            **self._own_settings(),
        )

    def _own_settings(self) -> dict[str, Any]:
        """Return prompts and similarity function where they are not the library's."""
        own = self.encoder
        found: dict[str, Any] = {}
        prompts = self.prompts, self.default_prompt_name
        if prompts != (own.prompts, own.default_prompt_name):
            found["prompts"], found["default_prompt_name"] = prompts
        if self.similarity_fn_name != own.similarity_fn_name:
            found["similarity_fn_name"] = self.similarity_fn_name
        return found


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
    return Calibrated(encoder, normalize=normalize).fit(sentences, **options)


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
    learner = encoder if known else Calibrated(encoder)
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
    return Calibrated(None, fitted.maps, fitted.record, fitted.history, normalize=normalize)


def load_calibration(folder: str | os.PathLike, encoder: Encoder = None) -> Calibrated:
    """Load a folder of `Calibrated.save` or `FlowCalibrator.save`.

    Only `encode` needs the encoder.
    """
    with reading(folder, "a calibration"):
        maps = read_maps(folder)
    path = pathlib.Path(folder, RECORD_FILE)
    if not path.exists():
        return Calibrated(encoder, maps, record_of_own(maps) or _UNKNOWN)
    record = read_json(path, SavedCalibration, expected="a calibration's record")
    history = saved_history(folder, record.flow.verdict)
    with reading(path, "a calibration's record"):
        return Calibrated(
            encoder,
            maps,
            record.flow,
            history,
            normalize=record.normalize,
            truncate_dim=record.truncate_dim,
            prompts=record.prompts,
            default_prompt_name=record.default_prompt_name,
            similarity_fn_name=record.similarity_fn_name,
        )


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


def _width_after(maps: Sequence[VectorMap]) -> int:
    # An encoder's width is known when it has encoded.
    return maps[-1].output_size if maps else sys.maxsize


@contextlib.contextmanager
def _layers_needed() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ArgumentError(f"format: {error}, expected .onnx") from error
