"""A local HTTP server like TF-Hub or a package index."""

import contextlib
import functools
import http.server
import os
import threading
from collections.abc import Callable, Iterator


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def served(folder: str | os.PathLike, port: int = 0) -> Iterator[str]:
    """Serve the folder during the block; yield its URL."""
    with running(functools.partial(_Quiet, directory=folder), port) as url:
        yield url


@contextlib.contextmanager
def running(
    handler: Callable[..., http.server.BaseHTTPRequestHandler], port: int = 0
) -> Iterator[str]:
    """Run a server of this handler during the block; yield its URL."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
