"""A model that an export's folder holds, in a process without TensorFlow."""

import collections
import concurrent.futures
import contextlib
import itertools
import logging
import os
import pathlib
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.reading import reading
from bert_flow_tf.common.version import DESCRIPTION_FILE, TOKENIZER_FILE
from bert_flow_tf.runtime.description import Description, read_description
from bert_flow_tf.runtime.programs import (
    CPU_PROVIDER,
    PROGRAMS,
    Program,
    backend_of,
    check_backend,
    check_provider,
    cores,
)
from bert_flow_tf.runtime.tokenizing import TextTokenizer
from bert_flow_tf.vectors.batches import (
    check_max_seq_length,
    length_batches,
    losses_in_words,
)
from bert_flow_tf.vectors.sentence_model import NoMaps, SentenceModel
from bert_flow_tf.vectors.similarities import normalized
from bert_flow_tf.vectors.tail import Tail
from bert_flow_tf.vectors.texts import sentence_list
from glow.number_types import is_whole_number

logger = logging.getLogger(__name__)

# A machine's rounding differs less, and damaged weights differ more, than this many times the
# difference that the export's check allows.
_DAMAGE = 100
_LEAST_COSINE = 0.9  # with int8
# A batch is the share of one thread, within these limits.
_FEW_TOKENS = 128
_MANY_TOKENS = 1024
# What a user may change in an opened model, beside its prompts.
_SETTINGS = ("max_seq_length", "truncate_dim", "similarity_fn_name")


class ProgramEncoder:
    """A stage for the program of an export, with its tokenizer.

    It may be called by several threads at once, and in forked children.

    Attributes:
      recipe: the recipe of the encoder that was exported, with the present length.
    """

    def __init__(
        self,
        description: Description,
        tokenizer: TextTokenizer,
        program: Program,
        threads: int | None = None,
    ) -> None:
        self._recipe = description.stages[0]
        self._width = description.embedding_size
        self._longest = self._max_seq_length = description.max_seq_length
        self._tokenizer = tokenizer
        self._program = program
        self._workers = threads or cores()
        self._set_threads()
        _OPENED.add(self)

    def _set_threads(self) -> None:
        self._executor = concurrent.futures.ThreadPoolExecutor(self._workers)
        self._calls = 0
        self._lock = threading.Lock()

    def start_anew(self) -> None:
        """Make the threads and locks that a forked child lacks."""
        self._set_threads()
        self._program.start_anew()

    @property
    def recipe(self) -> dict[str, Any]:
        return {**self._recipe, "max_seq_length": int(self.max_seq_length)}

    @property
    def max_seq_length(self) -> int:
        """The most word pieces per text; longer ones are cut. Settable."""
        return self._max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self._max_seq_length = check_max_seq_length(value, self._longest)
        self._tokenizer.limit(self._max_seq_length)

    def tokenize(self, texts: Iterable[str]) -> dict[str, np.ndarray]:
        """Return `input_ids` and `attention_mask`, int64 [n, t]."""
        ids, mask = self._tokenizer.pack(self._tokenizer.rows(sentence_list(texts))[0])
        return {"input_ids": ids, "attention_mask": mask}

    def probed(self, texts: Sequence[str]) -> np.ndarray:
        """Return embeddings of few texts in one batch."""
        rows, _ = self._tokenizer.rows(texts)
        # Several batches would compile the program of one thread, too.
        return self._program(*self._tokenizer.pack(rows), alone=True)

    def only_unknown(self, texts: Sequence[str]) -> np.ndarray:
        """Return True for each text [n] that holds only unknown word pieces."""
        rows, _ = self._tokenizer.rows(texts)
        return np.array(self._tokenizer.only_unknown(rows), bool)

    def encode(
        self,
        texts: Sequence[str],
        *,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        label: str = "",
    ) -> np.ndarray:
        """Return the program's embeddings, float32 [n, D]; each distinct text runs once.

        The program includes the maps. There is no bar, so `label` has no effect.

        Raises:
          UserError: an argument is invalid, or an embedding would not be finite.
        """
        if show_progress_bar:
            raise ArgumentError("show_progress_bar: found True, expected None: there is no bar")
        if not texts:
            return np.empty((0, self._width), np.float32)
        counts = collections.Counter(texts)
        rows, cut = self._tokenizer.rows(list(counts))
        self._warn_of_losses([*counts.values()], cut, self._tokenizer.only_unknown(rows))
        with self._running() as alone:
            found = self._run(rows, batch_size, alone=alone)
        if len(counts) == len(texts):
            return found
        index = {text: i for i, text in enumerate(counts)}
        return found[[index[text] for text in texts]]

    def _run(
        self, rows: Sequence[Sequence[int]], batch_size: int | None, *, alone: bool
    ) -> np.ndarray:
        if len(rows) == 1 and batch_size is None:
            return self._program(*self._tokenizer.pack(rows), alone=alone)
        values = np.empty((len(rows), self._width), np.float32)
        lengths = np.array([len(row) for row in rows])
        share = int(lengths.sum()) // self._workers
        batches = [*length_batches(lengths, batch_size, min(max(share, _FEW_TOKENS), _MANY_TOKENS))]
        alone = alone and len(batches) == 1

        def compute(batch: np.ndarray) -> None:
            values[batch] = self._program(
                *self._tokenizer.pack([rows[i] for i in batch]), alone=alone
            )

        if len(batches) == 1:
            compute(batches[0])
        else:
            # Read the results, because they raise the threads' errors.
            collections.deque(self._executor.map(compute, batches), maxlen=0)
        return values

    def _warn_of_losses(
        self, counts: Sequence[int], cut: Sequence[bool], unknown: Sequence[bool]
    ) -> None:
        """Warn of texts that lose words; `counts` are repetitions of each text."""
        if any(cut) or any(unknown):
            lost, unreadable = (sum(itertools.compress(counts, one)) for one in (cut, unknown))
            for words in losses_in_words(sum(counts), lost, unreadable, self.max_seq_length):
                logger.warning("%s", words)

    @contextlib.contextmanager
    def _running(self) -> Iterator[bool]:
        """Yield True if no other thread is in this block."""
        with self._lock:
            self._calls += 1
            alone = self._calls == 1
        try:
            yield alone
        finally:
            with self._lock:
                self._calls -= 1


_OPENED: weakref.WeakSet[ProgramEncoder] = weakref.WeakSet()


def _start_anew() -> None:
    for encoder in _OPENED:
        encoder.start_anew()


os.register_at_fork(after_in_child=_start_anew)


class ExportedModel(SentenceModel):
    """A sentence embedding model without training; see `open_export`.

    The methods and arguments are those of `BertFlow`; there are no tensors and no progress bar. It
    may be called by several threads at once, and in forked children. A pickle or a copy is the
    folder with the present settings, so it opens the folder again.

    Args:
      opened: the arguments of `open_export` but `truncate_dim`, which may change.

    Attributes:
      dtype: "float32" or "int8", the type of the matrices.
    """

    encoder: ProgramEncoder

    def __init__(
        self,
        description: Description,
        tokenizer: TextTokenizer,
        program: Program,
        *,
        opened: dict[str, Any],
    ) -> None:
        self._opened = opened
        self.encoder = ProgramEncoder(description, tokenizer, program, opened["threads"])
        *maps, self._exported_tail = description.stages[1:]
        self.chain = ExportedMaps(maps)
        self.tail = Tail(width=description.embedding_size, normalizes=description.normalized)
        self.dtype = description.dtype
        self._model = description.model
        self.set_prompts(description.prompts, description.default_prompt_name)
        self.similarity_fn_name = description.similarity_fn_name

    def __reduce__(self) -> tuple:
        settings = {name: getattr(self, name) for name in _SETTINGS}
        prompts = (self.prompts, self.default_prompt_name)
        return _opened_again, (self._opened, settings, prompts), self.step_settings

    def __repr__(self) -> str:
        words = f"{self.embedding_size} channels, {self.max_seq_length} word pieces, {self.dtype}"
        return f"ExportedModel({words})"

    def encode_blocks(
        self,
        sentences: Iterable[str],
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool | None = None,
        prompt: str | None = None,
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        if normalize_embeddings is False and self._exported_tail["norm"] != "none":
            raise ArgumentError(
                "normalize_embeddings: found False with an export that scales to norm 1, expected "
                "True or None"
            )
        yield from super().encode_blocks(
            sentences, batch_size, show_progress_bar, normalize_embeddings, prompt
        )

    @property
    def model_record(self) -> Any:
        # Whoever only encodes has no msgspec.
        import msgspec

        from bert_flow_tf.common.records import ModelRecord

        path = pathlib.Path(self._opened["folder"], DESCRIPTION_FILE)
        with reading(path, "the description of an export"):
            record = msgspec.convert(self._model, ModelRecord)
        return msgspec.structs.replace(
            record,
            max_seq_length=self.max_seq_length,
            # The program may have cut the channels already.
            truncate_dim=self.truncate_dim or record.truncate_dim,
        )

    def evaluate(self, on: Any) -> Any:
        """Return scores as `BertFlow.evaluate`, of the embeddings with the maps."""
        # Importing scikit-learn and scipy takes a second.
        from bert_flow_tf.tasks.scoring import scores_of, tasks_of

        return scores_of("ExportedModel.evaluate", self, tasks_of(on))

    def check_tensors(self, convert_to_numpy: bool, convert_to_tensor: bool) -> None:
        name = "convert_to_tensor" if convert_to_tensor else "convert_to_numpy"
        given = f"found {convert_to_tensor}, expected {not convert_to_tensor}"
        raise ArgumentError(f"{name}: {given}: there are no tensors")

    def recipe(
        self, *, prompt: str | None = None, normalize: bool | None = None
    ) -> list[dict[str, Any]]:
        *stages, tail = super().recipe(prompt=prompt, normalize=normalize)
        # The program has averaged, and perhaps scaled, what comes to the tail.
        norm = self._exported_tail["norm"] if tail["norm"] == "none" else tail["norm"]
        return [*stages, {**tail, "low_dim": self._exported_tail["low_dim"], "norm": norm}]

    def check_probes(self, folder: pathlib.Path, description: Description) -> None:
        """Raise `UserError` if the description's texts have other embeddings.

        This call also warms up the program.
        """
        expected = np.array([*description.probes.values()], np.float32)
        found = self.encoder.probed([*description.probes])
        sizes = np.maximum(1, np.abs(expected).max(axis=0, initial=0))
        if found.shape != expected.shape:
            is_close = False
        elif description.dtype == "int8":
            # Inputs are rounded by the batch's largest, so values depend on the batch.
            is_close = (
                np.sum(normalized(found) * normalized(expected), axis=1).min() > _LEAST_COSINE
            )
        else:
            limits = _DAMAGE * description.tolerance * sizes
            is_close = (np.abs(found - expected) <= limits).all()
        if not is_close:
            raise UserError(
                f"{folder}: the program gives other embeddings than its {DESCRIPTION_FILE}; "
                "export again"
            )


class ExportedMaps(NoMaps):
    """The maps that an export's program includes."""

    def __init__(self, identities: Sequence[dict[str, Any]]) -> None:
        self.identities = identities


def open_export(
    folder: str | os.PathLike,
    backend: str | None = None,
    truncate_dim: int | None = None,
    *,
    threads: int | None = None,
    provider: str = CPU_PROVIDER,
) -> ExportedModel:
    """Open a folder of `bert-flow export --format onnx` (or `openvino`).

    Nothing but numpy, tokenizers and onnxruntime (or openvino) is imported.

    Args:
      backend: "onnx" for onnxruntime, or "openvino", which runs both formats; None for the
        format's own.
      truncate_dim: number of leading channels that every embedding keeps; None for all.
      threads: the most threads that compute at once; None for one for each core.
      provider: onnxruntime's execution provider, such as "CUDAExecutionProvider".

    Raises:
      UserError: the folder is no export, or damaged, or the backend's library is missing.
    """
    path = pathlib.Path(folder)
    backend = backend or backend_of(path)
    check_backend(backend)
    check_provider(provider, backend)
    if threads is not None and not (is_whole_number(threads) and threads >= 1):
        raise ArgumentError(f"threads: found {threads!r}, expected a whole number of 1 or more")
    if not path.is_dir():
        raise UserError(f"{folder}: no such folder, expected an export")
    description = read_description(path)
    opened = {
        # Another process may have another working directory.
        "folder": str(path.absolute()),
        "backend": backend,
        "threads": threads,
        "provider": provider,
    }
    with reading(path / DESCRIPTION_FILE, "the description of an export"):
        check_max_seq_length(description.max_seq_length, None)
        tokenizer = TextTokenizer(path / TOKENIZER_FILE, description.max_seq_length)
        program = PROGRAMS[backend](path, threads, provider)
        model = ExportedModel(description, tokenizer, program, opened=opened)
    model.truncate_dim = truncate_dim
    model.check_probes(path, description)
    return model


def _opened_again(
    opened: dict[str, Any],
    settings: dict[str, Any],
    prompts: tuple[dict[str, str], str | None],
) -> ExportedModel:
    model = open_export(**opened)
    model.set_prompts(*prompts)
    for name, value in settings.items():
        setattr(model, name, value)
    return model
