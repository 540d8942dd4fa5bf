"""TensorFlow Serving's REST interface, by urllib3."""

import http.client
import io
import json
import math
import random
import socket
import time
import urllib.parse
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import numpy as np
from urllib3 import Timeout, connection_from_url, exceptions
from urllib3.connection import HTTPConnection, HTTPSConnection

from bert_flow_tf.serving.client_errors import (
    Inputs,
    ServedModel,
    ServingError,
    UnavailableError,
    most_bytes,
    one_line,
)

# Seconds before another try, and none after the last.
_PAUSES = (0.1, 0.2, 0.4, math.inf)
_IDLE_CONNECTIONS = 100


class _Reason(msgspec.Struct, frozen=True):
    error_message: str = ""


class _Version(msgspec.Struct):
    version: Annotated[int, msgspec.Meta(ge=0)]
    state: str
    status: _Reason = _Reason()


class _Status(msgspec.Struct):
    """An answer to a question for the model's status."""

    model_version_status: list[_Version]


class RestTransport:
    """Calls of one model by HTTP or HTTPS, at a URL that may have a path before `/v1`; never by a proxy."""

    def __init__(self, model: ServedModel, url: str) -> None:
        self._model = model
        self._pool = connection_from_url(url, maxsize=_IDLE_CONNECTIONS)
        self._pool.ConnectionCls = _SecureConnection if self._pool.scheme == "https" else _Connection
        before = urllib.parse.urlsplit(url).path.rstrip("/")
        self._path = f"{before}/v1/models/{urllib.parse.quote(model.name, safe='')}"

    def predict(
        self, signature: str, inputs: Inputs, output: str, *, version: int | None, timeout: float
    ) -> np.ndarray:
        """The values of a signature's output, a float32 array of the shape that the server gave them.

        `version` is None for the newest that the server has; `timeout` is in seconds, further tries included.

        Raises:
          ServingError: there is no such answer; `UnavailableError`, `NotFoundError` and `NoAnswerInTimeError` say why.
        """
        path = self._path if version is None else f"{self._path}/versions/{version}"
        answer = self._call("POST", f"{path}:predict", timeout, signature, inputs)
        values = answer.get("outputs")
        if values is None:
            raise self._model.unexpected(signature, f"an answer with {_names(answer)}", "outputs")
        # Where a signature has one output, the server's answer does not name it.
        if isinstance(values, dict):
            if output not in values:
                raise self._model.unexpected(signature, f"outputs {_names(values)}", output)
            values = values[output]
        try:
            array = np.array(values)
        except ValueError as error:
            raise self._model.unexpected(signature, f"{output} with rows of several lengths", "one length") from error
        if array.dtype.kind not in "iuf":
            raise self._model.unexpected(signature, f"{output} with values that are no numbers", "numbers")
        # What float32 cannot hold becomes an infinity, which the client refuses by the sentence's place.
        with np.errstate(over="ignore"):
            return array.astype(np.float32)

    def states(self, *, timeout: float) -> list[tuple[int, str, str]]:
        """List of (version, state, message) of the model's versions; the message is empty where all is well.

        Raises:
          ServingError: as `predict`.
        """
        answer = self._call("GET", self._path, timeout)
        try:
            # Not strictly: the server writes a version as a string of digits. As bytes, which hold no half characters.
            found = msgspec.json.decode(msgspec.json.encode(answer), type=_Status, strict=False).model_version_status
            return [(one.version, one.state, one.status.error_message) for one in found]
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            raise ServingError(
                f"{self._model}: found a status with {_names(answer)}, expected model_version_status, a list of "
                "versions and states"
            ) from error

    def close(self) -> None:
        """Closes the idle connections."""
        self._pool.close()

    def _call(
        self, method: str, path: str, timeout: float, signature: str = "", inputs: Inputs | None = None
    ) -> dict[str, Any]:
        """The JSON object that the server answers with."""
        request: Any = inputs and {"signature_name": signature, "inputs": inputs}
        status, text = self._exchange(method, path, request, most_bytes(inputs), timeout)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if status == http.HTTPStatus.OK:
            if not isinstance(found, dict):
                raise self._unusable(f"{text[:60]!r} for {method} {path}")
            return found
        if not isinstance(found, dict) or not isinstance(found.get("error"), str):
            raise self._unusable(f"HTTP {status} for {method} {path}: {text}")
        raise self._model.refusal(f"HTTP {status}", found["error"], signature, inputs or {})

    def _exchange(self, method: str, path: str, request: Any, most: int, timeout: float) -> tuple[int, str]:
        """Status and text of the answer, after further tries where the server is unavailable."""
        deadline = time.monotonic() + timeout
        # urllib3's own retries would give every try the whole timeout, and pause beyond it.
        for pause in _PAUSES:
            left = max(deadline - time.monotonic(), 1e-3)
            try:
                answer = self._pool.request(
                    *(method, path),
                    json=request,
                    timeout=Timeout(total=left),
                    retries=False,
                    preload_content=False,
                    decode_content=False,
                )
                data = b""
                while len(data) <= most and (part := answer.read(most + 1 - len(data))):
                    data += part
                if len(data) > most:
                    answer.close()
                    raise self._model.too_large(most)
                answer.release_conn()
            except exceptions.HTTPError as error:
                failure = self._failure(error, timeout)
            else:
                text = data.decode("utf-8", errors="replace")
                if answer.status == http.HTTPStatus.GATEWAY_TIMEOUT:
                    raise self._model.no_answer(timeout)
                if answer.status != http.HTTPStatus.SERVICE_UNAVAILABLE:
                    return answer.status, text or answer.reason or ""
                failure = self._model.unavailable(f"HTTP 503: {text}")
            if not isinstance(failure, UnavailableError) or time.monotonic() + pause >= deadline:
                raise failure
            # Clients that lost one server should not all come back at the same moment.
            time.sleep(pause * random.uniform(0.5, 1.0))
        raise AssertionError("the last pause ends after any deadline")

    def _failure(self, error: exceptions.HTTPError, timeout: float) -> ServingError:
        """The error for a request without a whole answer."""
        # The last thing that urllib3 says of a broken connection is what broke it.
        cause = error.args[-1] if isinstance(error, exceptions.ProtocolError) else error.__cause__ or error
        reason = getattr(cause, "strerror", None) or str(cause)
        if isinstance(error, exceptions.NewConnectionError):
            return self._model.unavailable(reason)
        if isinstance(error, exceptions.TimeoutError):
            return self._model.no_answer(timeout)
        if isinstance(error, exceptions.ProtocolError) and isinstance(cause, (OSError, http.client.IncompleteRead)):
            return self._model.unavailable(reason)
        return self._unusable(reason)

    def _unusable(self, found: str) -> ServingError:
        return ServingError(
            f"{self._model.target}: found {one_line(found)}, expected TensorFlow Serving's REST interface"
        )


class _Connection(HTTPConnection):
    """A connection whose timeout is that of an answer as a whole, not of each time that it waits."""

    def getresponse(self) -> Any:
        stream = _Received(self.sock, time.monotonic() + (self.timeout or math.inf))
        self.response_class = lambda _, **options: http.client.HTTPResponse(stream, **options)  # type: ignore
        return super().getresponse()


class _SecureConnection(_Connection, HTTPSConnection):
    """The same by TLS."""


class _Received(io.RawIOBase):
    """What a socket receives until `end`, a time of the monotonic clock."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        self._sock, self._end = sock, end
        self._stream = sock.makefile("rb", buffering=0)

    def makefile(self, mode: str) -> io.BufferedReader:
        # What an `HTTPResponse` asks of its socket.
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._stream.readinto(buffer)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _names(answer: Iterable[str]) -> str:
    return ", ".join(sorted(answer)) or "nothing"
