"""A page on this machine alone: a sentence is typed, and its nearest neighbours before and after the flow are shown."""

import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from bert_flow_tf.api import BertFlow
from bert_flow_tf.errors import UserError
from bert_flow_tf.report.page import document
from bert_flow_tf.results.table import Cell, Table, html_text, number

# Characters; a page's address holds them.
_LONGEST = 5000
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_STYLE = """
form { display: flex; flex-wrap: wrap; gap: .5rem; margin: 1.5rem 0; }
label { flex: 1 1 100%; font-weight: 600; }
input, button { font: inherit; color: inherit; background: var(--stripe); border: 1px solid var(--muted);
  border-radius: .5rem; padding: .5rem .75rem; }
input { flex: 1 1 14rem; min-width: 0; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 0 2rem; }
"""


class Neighbours:
    """The nearest of given sentences to any other, before a flow and after it.

    Args:
      model: with a flow, whose latents are not averaged (`low_dim`).
      sentences: one or more; one that recurs counts once.

    Raises:
      UserError: the model has no such flow, or as `BertFlow.encode`.
    """

    def __init__(self, model: BertFlow, sentences: Sequence[str]) -> None:
        self.model = model
        self.sentences = list(dict.fromkeys(sentences))
        # Before the many: a model that does not fit is refused at once.
        self._sides(self.sentences[:1])
        self._of_all = self._sides(self.sentences)

    def _sides(self, sentences: Sequence[str]) -> dict[str, np.ndarray]:
        """Embeddings [n, D] by the side of the flow."""
        after = self.model.encode(sentences)
        return {"before": self.model.inverse(after), "after": after}

    def cosines(self, sentence: str) -> dict[str, np.ndarray]:
        """Cosines float32 [n] of a sentence with all of `sentences`, "before" and "after" the flow."""
        sides = self._sides([sentence])
        return {side: self.model.similarity(one, self._of_all[side])[0] for side, one in sides.items()}


def neighbour_tables(sentences: Sequence[str], cosines: dict[str, np.ndarray], k: int) -> dict[str, Table]:
    """For either side of the flow a table of the k nearest sentences, with their rank on the other side."""
    order = {side: np.argsort(-values, kind="stable") for side, values in cosines.items()}
    ranks = {side: np.argsort(rows, kind="stable") + 1 for side, rows in order.items()}
    tables = {}
    for side, other in (("before", "after"), ("after", "before")):
        rows = [
            [Cell(sentences[row] or "(empty)"), number(float(cosines[side][row])), number(int(ranks[other][row]), 0)]
            for row in order[side][:k]
        ]
        note = f"Mean cosine with all {len(sentences):,} sentences: {cosines[side].mean():.2f}."
        title = f"{side.capitalize()} the flow"
        tables[side] = Table(("Sentence", "Cosine", f"Rank {other}"), rows, title=title, notes=(note,))
    return tables


class _QuietHandler(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Says nothing: a page that is shown is no news."""


class Explorer:
    """The page, as a WSGI application: a form, and the neighbours of the sentence that it was sent with."""

    def __init__(self, neighbours: Neighbours, k: int) -> None:
        self.neighbours, self.k = neighbours, k
        self._lock = threading.Lock()

    def __call__(self, environ: dict, start_response: Any) -> Any:
        request = Request(environ)
        # A page of another name, which its owner has made point at this machine, would read what is said here.
        request.trusted_hosts = ["127.0.0.1", "localhost"]
        response = self._response(request)
        response.headers.extend(_HEADERS)
        return response(environ, start_response)

    def _response(self, request: Request) -> Response:
        try:
            # Which raises where it is not a trusted one.
            _ = request.host
            if request.path != "/":
                raise NotFound
            if request.method not in ("GET", "HEAD"):
                raise MethodNotAllowed(["GET", "HEAD"])
        except HTTPException as error:
            return Response(f"{error.code} {error.name}\n", error.code, content_type="text/plain; charset=utf-8")
        sentence = request.args.get("sentence", "").strip()
        try:
            found, status = list(self._found(sentence)) if sentence else [], 200
        except UserError as error:
            found, status = [f'<p role="alert">{html_text(str(error))}</p>'], 400
        return Response(self._page(sentence, found), status, content_type="text/html; charset=utf-8")

    def _found(self, sentence: str) -> Iterator[str]:
        if len(sentence) > _LONGEST:
            raise UserError(f"sentence: found {len(sentence):,} characters, expected at most {_LONGEST:,}")
        # A browser may ask twice at once; the model computes with all processors for one.
        with self._lock:
            cosines = self.neighbours.cosines(sentence)
        yield '<div class="sides">'
        for side, table in neighbour_tables(self.neighbours.sentences, cosines, self.k).items():
            yield f"<div>{table.to_html(side)}</div>"
        yield "</div>"

    def _page(self, sentence: str, found: Sequence[str]) -> str:
        count = len(self.neighbours.sentences)
        form = [
            f"<p>The nearest of {count:,} sentences by cosine, before the flow and after it.</p>",
            '<form action="/" method="get">',
            '<label for="sentence">Sentence</label>',
            f'<input id="sentence" name="sentence" maxlength="{_LONGEST}" autocomplete="off"'
            f'{"" if sentence else " autofocus"} value="{html_text(sentence)}">',
            "<button>Find neighbours</button>",
            "</form>",
        ]
        return document("Neighbours before and after the flow", [*form, *found], form_action="'self'", style=_STYLE)


def serve(explorer: Explorer, listening: socket.socket) -> None:
    """Answers on a socket that listens, until the process is interrupted."""
    host, port = listening.getsockname()
    server = make_server(host, port, explorer, threaded=True, request_handler=_QuietHandler, fd=listening.fileno())
    server.serve_forever()
