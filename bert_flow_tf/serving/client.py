"""A client of TensorFlow Serving for models that `bert-flow export` wrote, by gRPC or REST."""

import collections
import numbers
import random
import time
import urllib.parse

import numpy as np

from bert_flow_tf.errors import UserError
from bert_flow_tf.serving.client_errors import (
    NoAnswerInTimeError,
    NotFoundError,
    ServingError,
    UnavailableError,
    one_line,
)

_ATTEMPTS = 4
_FIRST_PAUSE = 0.1
_LONGEST_POLL = 1.0
_LONGEST_TIMEOUT = 86_400
# How often one call may begin anew since its version was taken out of service.
_VERSION_CHANGES = 3

VersionState = collections.namedtuple("VersionState", ["version", "state"])


def connect(target, model, version=None, *, timeout=10.0):
    """`ServingClient` of the model at `target`. Nothing is sent yet.

    Example:
      with connect("grpc://localhost:8500", "stsb") as client:
          embeddings = client.encode(["A small boat crosses the lake.", "The ferry leaves at noon."])

    Args:
      target: `grpc://host:port`, `http://host:port` or `https://host:port`; the latter two may have a path before
        `/v1`. gRPC loads TensorFlow, which takes seconds; REST does not.
      model: its name at the server, which `server_files.served_name` reads from an exported model's folder.
      version: int, or None for the newest that is in service.
      timeout: seconds that each request may take, further tries included; a call sends one a batch.

    Raises:
      UserError: an argument is none of these.
      ServingError: gRPC's packages are not installed.
    """
    if not isinstance(model, str) or not model or not model.isprintable():
        raise UserError(f"model: found {model!r}, expected a model's name")
    if version is not None and not (_is_whole(version) and 0 <= version < 1 << 63):
        raise UserError(f"version: found {version!r}, expected a whole number from 0 on, or None for the newest")
    _check_seconds("timeout", timeout)
    try:
        parts = urllib.parse.urlsplit(target)
        host, port = parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError):
        parts, host, port = None, None, None
    plain = parts and host and port != 0 and not ("@" in parts.netloc or parts.query or parts.fragment)
    if plain and parts.scheme == "grpc" and port and parts.path in ("", "/"):
        from bert_flow_tf.serving.client_grpc import GrpcTransport

        transport = GrpcTransport(target, parts.netloc, model)
    elif plain and parts.scheme in ("http", "https"):
        from bert_flow_tf.serving.client_rest import RestTransport

        port = port or (443 if parts.scheme == "https" else 80)
        path = urllib.parse.quote(parts.path.rstrip("/"), safe="/%")
        transport = RestTransport(target, scheme=parts.scheme, host=host, port=port, path=path, model=model)
    else:
        raise UserError(f"target: found {target!r}, expected grpc://host:port, http://host:port or https://host:port")
    return ServingClient(transport, target=target, model=model, version=version, timeout=timeout)


class ServingClient:
    """Embeddings and cosines from a model server; `connect` makes one. Threads may share it.

    A request that finds the server unavailable is sent again, at most three times, with growing pauses, inside its
    timeout; none is sent again for another reason. The rows of one call come from one version of the model, also where
    the call takes several requests and a new version comes into service between them.

    As a context manager it closes its connections at the end.
    """

    def __init__(self, transport, *, target, model, version, timeout):
        self._transport = transport
        self._target, self._model, self._version, self._timeout = target, model, version, timeout

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Closes the connections; the client cannot be used after."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def encode(self, sentences, batch_size=32, *, signature="serving_default"):
        """Embeddings float32 [n, D] of the sentences, in their order.

        For no sentences it is [0, D]: D is learnt from the embedding of one empty sentence.

        Args:
          sentences: list of str.
          batch_size: most sentences a request.
          signature: `serving_default`, or `pooled` for embeddings before the flow.

        Raises:
          UserError: an element is no string, or one that UTF-8 cannot hold.
          ServingError: the server gave no such embeddings.
        """
        sentences = _checked("sentences", sentences)
        inputs = {"sentences": sentences or [""]}
        return self._rows(signature, inputs, "embedding", batch_size, rank=2)[: len(sentences)]

    def similarity(self, a, b, batch_size=32):
        """Cosines float32 [n] of the embeddings of a[i] and b[i]; for no pairs [0], without a request.

        Args:
          a: list of str.
          b: list of as many.
          batch_size: most pairs a request.

        Raises:
          UserError: as `encode`; or one list is longer.
          ServingError: the server gave no such cosines.
        """
        a, b = _checked("a", a), _checked("b", b)
        if len(a) != len(b):
            raise UserError(f"similarity: found {len(a)} and {len(b)} sentences, expected as many")
        if not a:
            return np.zeros([0], np.float32)
        return self._rows("similarity", {"sentence_a": a, "sentence_b": b}, "cosine", batch_size, rank=1)

    def status(self):
        """List of (version, state), by version, of all versions of the model that the server knows.

        States are START, LOADING, AVAILABLE, UNLOADING and END; where the server says why (a version that cannot be
        loaded), `END: ` and its message in one line.

        Raises:
          ServingError: the server gave no status; `NotFoundError` where it does not know the model.
        """
        return self._states(time.monotonic() + self._timeout)

    def wait_until_ready(self, timeout=60.0):
        """Returns when the model, at the client's version or at any, is AVAILABLE.

        Args:
          timeout: seconds to wait at most; a server that is not there yet is waited for as well.

        Raises:
          NoAnswerInTimeError: it was not in time; the message has the last that was seen.
          ServingError: what answers there is no model server.
        """
        _check_seconds("timeout", timeout)
        deadline, pause = time.monotonic() + timeout, _FIRST_PAUSE
        while True:
            left = deadline - time.monotonic()
            try:
                states = self._sorted_states(min(max(left, 1e-3), self._timeout))
                if self._available(states):
                    return
                seen = f"{self._target}: found {_listed(states)}"
            except (UnavailableError, NotFoundError, NoAnswerInTimeError) as error:
                seen = str(error)
            if time.monotonic() + pause >= deadline:
                raise NoAnswerInTimeError(f"{self._named()} not AVAILABLE after {timeout:g} s; last seen: {seen}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_POLL)

    def _rows(self, signature, inputs, output, batch_size, rank):
        """The output for all the inputs, which are lists of one length that is not 0."""
        if not _is_whole(batch_size) or batch_size < 1:
            raise UserError(f"batch_size: found {batch_size!r}, expected a positive whole number")
        n = len(next(iter(inputs.values())))

        def all_batches(version):
            answers = []
            for start in range(0, n, batch_size):
                batch = {name: values[start : start + batch_size] for name, values in inputs.items()}
                answers.append(self._batch(signature, batch, output, version, rank, start))
                if answers[-1].shape[1:] != answers[0].shape[1:]:
                    raise ServingError(
                        f"{self._named()}, signature {signature}: found {output} of widths {answers[0].shape[1]} and "
                        f"{answers[-1].shape[1]} in one call, expected one"
                    )
            return np.concatenate(answers)

        if n <= batch_size or self._version is not None:
            return all_batches(self._version)
        return self._of_one_version(all_batches)

    def _of_one_version(self, all_batches):
        for change in range(_VERSION_CHANGES + 1):
            states = self._states(time.monotonic() + self._timeout)
            available = self._available(states)
            if not available:
                raise NotFoundError(f"{self._named()}: no version AVAILABLE, found {_listed(states)}")
            try:
                return all_batches(max(available))
            except NotFoundError:
                # Out of service before the last batch: all of them once more, from the version that replaced it.
                if change == _VERSION_CHANGES:
                    raise

    def _batch(self, signature, inputs, output, version, rank, start):
        deadline = time.monotonic() + self._timeout

        def attempt(left):
            return self._open_transport().predict(signature, inputs, output, version=version, timeout=left)

        try:
            values = self._with_further_tries(attempt, deadline)
        except NotFoundError as error:
            raise self._explained(error, version, deadline) from error
        n = len(next(iter(inputs.values())))
        if values.ndim != rank or values.shape[0] != n:
            expected = f"[{n}]" if rank == 1 else f"[{n}, D]"
            raise ServingError(
                f"{self._named()}, signature {signature}: found {output} of shape {list(values.shape)}, "
                f"expected {expected}"
            )
        finite = np.isfinite(values).reshape(n, -1).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            kind = "NaN" if np.isnan(values[row]).any() else "an infinity"
            raise ServingError(
                f"{self._named()}, signature {signature}: found {kind} in {output} number {start + row} (from 0), "
                "expected finite numbers"
            )
        return values

    def _states(self, deadline):
        def attempt(left):
            return self._sorted_states(left)

        return self._with_further_tries(attempt, deadline)

    def _sorted_states(self, timeout):
        states = self._open_transport().states(timeout=timeout)
        return [VersionState(v, f"{state}: {one_line(why)}" if why else state) for v, state, why in sorted(states)]

    def _available(self, states):
        """Those of the versions that are in service and that the client may use."""
        return [v for v, state in states if state == "AVAILABLE" and self._version in (None, v)]

    def _with_further_tries(self, attempt, deadline):
        pause = _FIRST_PAUSE
        for number in range(1, _ATTEMPTS + 1):
            try:
                return attempt(max(deadline - time.monotonic(), 1e-3))
            except UnavailableError as error:
                if number == _ATTEMPTS or time.monotonic() + pause >= deadline:
                    tries = f"{number} {'try' if number == 1 else 'tries'}"
                    raise UnavailableError(f"{error}; {tries}") from error
            # Clients that lost one server should not all come back at the same moment.
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause *= 2

    def _explained(self, error, version, deadline):
        """The error to raise for a `NotFoundError`, with what there is instead where that can be learnt."""
        left = deadline - time.monotonic()
        if left <= 0:
            return error
        try:
            states = self._sorted_states(left)
        except NotFoundError:
            return NotFoundError(
                f"{self._target}: found no model {self._model}, expected the name of one that is served ({error})"
            )
        except ServingError:
            return error
        if version is None:
            missing, in_service = "no version", any(state == "AVAILABLE" for _, state in states)
        else:
            missing, in_service = f"version {version} not", VersionState(version, "AVAILABLE") in states
        if in_service:
            # What the server did not find is something else, which its own message names.
            return ServingError(str(error))
        return NotFoundError(f"{self._named()}: {missing} AVAILABLE, found {_listed(states)}")

    def _open_transport(self):
        transport = self._transport
        if transport is None:
            raise ServingError(f"{self._target}: the client is closed, expected an open one")
        return transport

    def _named(self):
        return f"{self._target}, model {self._model}"


def _listed(states):
    return ", ".join(f"version {version} {state}" for version, state in states) or "no version"


def _check_seconds(name, value):
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not 0 < value <= _LONGEST_TIMEOUT:
        raise UserError(f"{name}: found {value!r}, expected a positive number of seconds, at most {_LONGEST_TIMEOUT}")


def _is_whole(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _checked(name, sentences):
    """The sentences as a list, after a look at each."""
    if isinstance(sentences, str):
        raise UserError(f"{name}: found one str, expected a list of them")
    sentences = list(sentences)
    for i, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise UserError(f"{name}[{i}]: found {type(sentence).__name__}, expected str")
        try:
            sentence.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UserError(
                f"{name}[{i}]: found U+{ord(sentence[error.start]):04X} at character {error.start}, expected text "
                "that UTF-8 can hold"
            ) from None
    return sentences
