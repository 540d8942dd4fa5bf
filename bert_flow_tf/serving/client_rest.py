"""TensorFlow Serving's REST interface, spoken with the standard library alone."""

import collections
import http.client
import json
import ssl
import time
import urllib.parse

import numpy as np

from bert_flow_tf.serving.client_errors import NotFoundError, ServingError, asked, no_answer, one_line, unavailable

_PIECE = 1 << 16


class RestTransport:
    """Calls of one model by HTTP or HTTPS, each idle connection being used again. Threads may share it.

    Proxies that the environment names are not used.

    Args:
      target: `http://host:port`, perhaps with a path before `/v1`, for messages.
      scheme: `http` or `https`.
      host: name or address.
      port: int.
      path: what stands before `/v1`, without a slash at its end.
      model: its name at the server.
    """

    def __init__(self, target, *, scheme, host, port, path, model):
        self._target, self._model = target, model
        self._host, self._port = host, port
        self._path = f"{path}/v1/models/{urllib.parse.quote(model, safe='')}"
        self._tls = ssl.create_default_context() if scheme == "https" else None
        # Appending and popping are atomic, and the connection last used is the likeliest to be open still.
        self._idle = collections.deque()

    def predict(self, signature, inputs, output, *, version, timeout):
        """The output's values, a float32 array of the shape that the server gave them.

        Args:
          signature: name of the signature.
          inputs: dict of input's name -> list of str.
          output: the output's name. Where a signature has one output, the server's answer does not name it.
          version: int, or None for the newest that the server has.
          timeout: seconds until there must be an answer.

        Raises:
          ServingError: there is no such answer; `UnavailableError`, `NotFoundError` and `NoAnswerInTimeError` say why.
        """
        path = self._path if version is None else f"{self._path}/versions/{version}"
        request = {"signature_name": signature, "inputs": inputs}
        answer = self._call("POST", f"{path}:predict", request, timeout, asked(signature, inputs))
        values = answer.get("outputs")
        if values is None:
            raise self._unexpected(signature, f"an answer with {_names(answer)}", "outputs")
        if isinstance(values, dict):
            if output not in values:
                raise self._unexpected(signature, f"outputs {_names(values)}", output)
            values = values[output]
        try:
            array = np.array(values)
        except ValueError as error:
            raise self._unexpected(signature, f"{output} with rows of several lengths", "one length") from error
        if array.dtype.kind not in "iuf":
            raise self._unexpected(signature, f"{output} with values that are no numbers", "numbers")
        # What float32 cannot hold becomes an infinity, which the client refuses by the sentence's place.
        with np.errstate(over="ignore"):
            return array.astype(np.float32)

    def states(self, *, timeout):
        """List of (version, state, message) of the model's versions; the message is empty where all is well.

        Raises:
          ServingError: as `predict`.
        """
        answer = self._call("GET", self._path, None, timeout)
        try:
            return [
                (int(status["version"]), str(status["state"]), str(status.get("status", {}).get("error_message", "")))
                for status in answer["model_version_status"]
            ]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ServingError(
                f"{self._target}, model {self._model}: found a status with {_names(answer)}, expected "
                "model_version_status, a list of versions and states"
            ) from error

    def close(self):
        """Closes the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _call(self, method, path, request, timeout, asked_for=None):
        """The JSON object that the server answers with."""
        body = None if request is None else json.dumps(request, ensure_ascii=False).encode("utf-8")
        status, reason, answer = self._exchange(method, path, body, timeout)
        text = answer.decode("utf-8", errors="replace")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if status == http.HTTPStatus.OK:
            if not isinstance(found, dict):
                raise ServingError(
                    f"{self._target}: found {one_line(text[:60])!r} for {method} {path}, expected a JSON object"
                )
            return found
        from_serving = isinstance(found, dict) and isinstance(found.get("error"), str)
        message = found["error"] if from_serving else text.strip() or reason
        if status == http.HTTPStatus.SERVICE_UNAVAILABLE:
            raise unavailable(self._target, f"HTTP 503: {message}")
        if status == http.HTTPStatus.GATEWAY_TIMEOUT:
            raise no_answer(self._target, timeout)
        if not from_serving:
            raise ServingError(
                f"{self._target}: HTTP {status} for {method} {path} ({one_line(message)}), expected TensorFlow "
                "Serving's REST interface"
            )
        kind = NotFoundError if status == http.HTTPStatus.NOT_FOUND else ServingError
        where = f"{self._target}, model {self._model}"
        if asked_for and status == http.HTTPStatus.BAD_REQUEST:
            # What gRPC calls INVALID_ARGUMENT.
            where += f", {asked_for}"
        raise kind(f"{where}: HTTP {status}: {one_line(message)}")

    def _exchange(self, method, path, body, timeout):
        """(status, reason, body) of the answer, by the deadline; every failure to get one as a `ServingError`."""
        deadline = time.monotonic() + timeout
        try:
            while self._idle:
                try:
                    connection = self._idle.pop()
                except IndexError:  # another thread took it
                    break
                try:
                    return self._request(connection, method, path, body, deadline)
                except ConnectionError:
                    # The server hung up while the connection was idle, which says nothing of whether it answers now.
                    continue
            return self._request(self._connection(), method, path, body, deadline)
        except TimeoutError as error:
            raise no_answer(self._target, timeout) from error
        except (http.client.IncompleteRead, ConnectionError) as error:
            raise unavailable(self._target, getattr(error, "strerror", None) or str(error)) from error
        except ssl.SSLError as error:
            raise ServingError(f"{self._target}: found no TLS that can be trusted ({error.reason or error})") from error
        except http.client.HTTPException as error:
            raise ServingError(
                f"{self._target}: found an answer that is not HTTP, expected TensorFlow Serving's REST port"
            ) from error
        except OSError as error:
            raise unavailable(self._target, error.strerror or str(error)) from error
        except UnicodeError as error:
            raise ServingError(f"{self._target}: found {self._host!r}, expected a host's name") from error

    def _connection(self):
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port)

    def _request(self, connection, method, path, body, deadline):
        kept = False
        try:
            if connection.sock is None:
                connection.timeout = _left(deadline)
                connection.connect()
            # Held here, since http.client lets go of it when the server says that it will close the connection.
            sock = connection.sock
            sock.settimeout(_left(deadline))
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            sock.settimeout(_left(deadline))
            response = connection.getresponse()
            answer = _read(response, sock, deadline)
            kept = not response.will_close
            response.close()
        finally:
            if kept:
                self._idle.append(connection)
            else:
                connection.close()
        return response.status, response.reason, answer

    def _unexpected(self, signature, found, expected):
        return ServingError(
            f"{self._target}, model {self._model}, signature {signature}: found {found}, expected {expected}"
        )


def _left(deadline):
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _read(response, sock, deadline):
    """The answer's body. A socket's own timeout would begin anew with every piece that comes."""
    pieces, missing = [], response.length
    while missing is None or missing > 0:
        sock.settimeout(_left(deadline))
        piece = response.read1(_PIECE if missing is None else min(missing, _PIECE))
        if not piece:
            break
        pieces.append(piece)
        missing = None if missing is None else missing - len(piece)
    if missing:
        raise ConnectionResetError("the connection was closed in the middle of an answer")
    return b"".join(pieces)


def _names(answer):
    return ", ".join(sorted(answer)) or "nothing"
