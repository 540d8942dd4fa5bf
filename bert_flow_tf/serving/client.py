"""A client of TensorFlow Serving for models that `bert-flow export` wrote, by gRPC or REST."""

import numbers
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from bert_flow_tf.errors import ArgumentError
from bert_flow_tf.files.sentence_files import sentence_list
from bert_flow_tf.serving.client_errors import (
    NoAnswerInTimeError,
    NotFoundError,
    ServedModel,
    ServingError,
    UnavailableError,
    one_line,
)
from bert_flow_tf.serving.client_grpc import GrpcTransport
from bert_flow_tf.serving.client_rest import RestTransport

Transport = GrpcTransport | RestTransport

_FIRST_POLL, _LONGEST_POLL = 0.1, 1.0
_LONGEST_TIMEOUT = 86_400
# How often one call starts again because its version was taken out of service.
_VERSION_CHANGES = 3


class VersionState(NamedTuple):
    """A version of a model at its server."""

    version: int
    state: str


def connect(target: str, model: str, version: int | None = None, *, timeout: float = 10.0) -> "ServingClient":
    """`ServingClient` of the model at `target`. Nothing is sent yet.

    Example:
      with connect("grpc://localhost:8500", "stsb") as client:
          embeddings = client.encode(["A small boat crosses the lake.", "The ferry leaves at noon."])

    Args:
      target: `grpc://host:port`, `http://host:port` or `https://host:port`; the latter two may have a path before
        `/v1`. gRPC loads TensorFlow, which takes seconds; REST does not.
      model: its name at the server, which `server_files.served_name` reads from an exported model's folder.
      version: None for the newest that is in service.
      timeout: seconds that each request may take, further tries included; a call sends one request per batch.

    Raises:
      UserError: an argument is none of these.
    """
    if not isinstance(model, str) or not model or not model.isprintable():
        raise ArgumentError(f"model: found {model!r}, expected a model's name")
    if version is not None and not (_is_whole(version) and 0 <= version < 1 << 63):
        raise ArgumentError(f"version: found {version!r}, expected a whole number from 0 on, or None for the newest")
    _check_timeout(timeout)
    served = ServedModel(target, model)
    try:
        url = parse_url(target if isinstance(target, str) else "")
    except LocationParseError:
        url = parse_url("")
    plain = url.host and url.port != 0 and not (url.auth or url.query or url.fragment)
    transport: Transport
    if plain and url.scheme == "grpc" and url.port and url.path in (None, "/"):
        transport = GrpcTransport(served, f"{url.host}:{url.port}")
    elif plain and url.scheme in ("http", "https"):
        transport = RestTransport(served, str(url))
    else:
        raise ArgumentError(
            f"target: found {target!r}, expected grpc://host:port, http://host:port or https://host:port"
        )
    return ServingClient(transport, served, version=version, timeout=timeout)


class ServingClient:
    """Embeddings and cosines from a model server; `connect` makes one. Threads may share it.

    A request that finds the server unavailable is sent again, at most three times, with growing pauses, inside its
    timeout; none is sent again for another reason. The rows of one call come from one version of the model, also where
    the call takes several requests and a new version comes into service between them.
    """

    def __init__(self, transport: Transport, model: ServedModel, *, version: int | None, timeout: float) -> None:
        self._transport: Transport | None = transport
        self._model, self._version, self._timeout = model, version, timeout

    def __enter__(self) -> "ServingClient":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; the client cannot be used after."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def encode(
        self, sentences: Iterable[str], batch_size: int = 32, *, signature: str = "serving_default"
    ) -> np.ndarray:
        """Embeddings float32 [n, D] of the sentences, `batch_size` per request; before the flow by signature `pooled`.

        For no sentences it is [0, D]: D comes from the embedding of one empty sentence.

        Raises:
          UserError: an element is no string, or one that UTF-8 cannot hold.
          ServingError: the server gave no such embeddings.
        """
        texts = sentence_list(sentences)
        return self._rows(signature, {"sentences": texts or [""]}, batch_size)[: len(texts)]

    def similarity(self, a: Iterable[str], b: Iterable[str], batch_size: int = 32) -> np.ndarray:
        """Cosines float32 [n] of the embeddings of a[i] and b[i]; for no pairs [0], without a request.

        Raises:
          UserError: as `encode`; or the lengths differ.
          ServingError: the server gave no such cosines.
        """
        a, b = sentence_list(a, "a"), sentence_list(b, "b")
        if len(a) != len(b):
            raise ArgumentError(f"b: found {len(b)} sentences, expected {len(a)}, the number in a")
        if not a:
            return np.zeros([0], np.float32)
        return self._rows("similarity", {"sentence_a": a, "sentence_b": b}, batch_size)

    def status(self) -> list[VersionState]:
        """List of (version, state), by version, of all versions of the model that the server knows.

        States are START, LOADING, AVAILABLE, UNLOADING and END; where the server says why (a version that cannot be
        loaded), `END: ` and its message in one line.

        Raises:
          ServingError: the server gave no status; `NotFoundError` where it does not know the model.
        """
        return self._states(self._timeout)

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Returns when the model, at the client's version or at any, is AVAILABLE; waits for a server to start, too.

        Raises:
          NoAnswerInTimeError: it was not in time; the message has the last that was seen.
          ServingError: what answers there is no model server.
        """
        _check_timeout(timeout)
        deadline, pause, seen = time.monotonic() + timeout, _FIRST_POLL, ""
        while True:
            left = max(deadline - time.monotonic(), 1e-3)
            try:
                states = self._states(min(left, self._timeout))
                if self._available(states):
                    return
                seen = f"{self._model.target}: found {_listed(states)}"
            except (UnavailableError, NotFoundError) as error:
                seen = str(error)
            except NoAnswerInTimeError as error:
                # The last poll may have too little time to see what those before it saw.
                seen = seen or str(error)
            if time.monotonic() + pause >= deadline:
                raise NoAnswerInTimeError(f"{self._model} not AVAILABLE after {timeout:g} s; last seen: {seen}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_POLL)

    def _rows(self, signature: str, inputs: dict[str, list[str]], batch_size: int) -> np.ndarray:
        """The signature's output for all the inputs, which are lists of one length that is not 0, from one version."""
        if not _is_whole(batch_size) or batch_size < 1:
            raise ArgumentError(f"batch_size: found {batch_size!r}, expected a positive whole number")
        n = len(next(iter(inputs.values())))
        for change in range(_VERSION_CHANGES + 1):
            version = self._newest() if self._version is None and n > batch_size else self._version
            try:
                batches = []
                for start in range(0, n, batch_size):
                    batch = {name: values[start : start + batch_size] for name, values in inputs.items()}
                    batches.append(self._batch(signature, batch, version, start))
                break
            except NotFoundError:
                # Out of service before the last batch: all of them once more, from the version that replaced it.
                if version == self._version or change == _VERSION_CHANGES:
                    raise
        widths = sorted({batch.shape[1] for batch in batches if batch.ndim == 2})
        if len(widths) > 1:
            found = f"embedding of widths {widths[0]} and {widths[1]} in one call"
            raise self._model.unexpected(signature, found, "one width")
        return np.concatenate(batches)

    def _newest(self) -> int:
        states = self._states(self._timeout)
        if not (available := self._available(states)):
            raise NotFoundError(f"{self._model}: no version AVAILABLE, found {_listed(states)}")
        return max(available)

    def _batch(self, signature: str, inputs: dict[str, list[str]], version: int | None, start: int) -> np.ndarray:
        """The output for the inputs of one request, whose first row is number `start` of the call."""
        output, rank = ("cosine", 1) if signature == "similarity" else ("embedding", 2)
        deadline = time.monotonic() + self._timeout
        try:
            values = self._open().predict(signature, inputs, output, version=version, timeout=self._timeout)
        except NotFoundError as error:
            raise self._explained(error, version, deadline - time.monotonic()) from error
        n = len(next(iter(inputs.values())))
        if values.ndim != rank or values.shape[0] != n:
            expected = f"[{n}]" if rank == 1 else f"[{n}, D]"
            raise self._model.unexpected(signature, f"{output} of shape {list(values.shape)}", expected)
        finite = np.isfinite(values).reshape(n, -1).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            kind = "NaN" if np.isnan(values[row]).any() else "an infinity"
            raise self._model.unexpected(
                signature, f"{kind} in {output} number {start + row} (from 0)", "finite numbers"
            )
        return values

    def _states(self, timeout: float) -> list[VersionState]:
        try:
            states = sorted(self._open().states(timeout=timeout))
        except NotFoundError as error:
            raise NotFoundError(
                f"{self._model.target}: found no model {self._model.name}, expected the name of one that is served "
                f"({error})"
            ) from error
        return [VersionState(v, f"{state}: {one_line(why)}" if why else state) for v, state, why in states]

    def _available(self, states: list[VersionState]) -> list[int]:
        """Those of the versions that are in service and that the client may use."""
        return [v for v, state in states if state == "AVAILABLE" and self._version in (None, v)]

    def _explained(self, error: NotFoundError, version: int | None, timeout: float) -> ServingError:
        """The error to raise for a `NotFoundError`, with what there is instead where the server says so in time."""
        try:
            states = self._states(max(timeout, 1e-3))
        except NotFoundError as no_model:
            return no_model
        except ServingError:
            return error
        if any(state == "AVAILABLE" and version in (None, v) for v, state in states):
            # What the server did not find is something else, which its own message names.
            return ServingError(str(error))
        missing = "no version" if version is None else f"version {version} not"
        return NotFoundError(f"{self._model}: {missing} AVAILABLE, found {_listed(states)}")

    def _open(self) -> Transport:
        transport = self._transport
        if transport is None:
            raise ServingError(f"{self._model.target}: the client is closed, expected an open one")
        return transport


def _listed(states: list[VersionState]) -> str:
    return ", ".join(f"version {version} {state}" for version, state in states) or "no version"


def _check_timeout(value: Any) -> None:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not 0 < value <= _LONGEST_TIMEOUT:
        raise ArgumentError(
            f"timeout: found {value!r}, expected a positive number of seconds, at most {_LONGEST_TIMEOUT}"
        )


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
