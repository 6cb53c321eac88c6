"""`watch`: the page of a study while it runs, served to this machine alone."""

import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from apical.errors import ApicalError, InvalidArgumentError
from apical.report import draw
from apical.report.gathering import gather
from apical.report.render import html
from apical.study.results import StudyResults

HOST = "127.0.0.1"
OURS = ("127.0.0.1", "localhost")
"""Names under which a browser may ask: a page elsewhere must not reach this one under another."""
PATIENCE = 30.0
"""Seconds that a client may say nothing, or take nothing, before its connection is closed."""
GUARDS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
}

Read = Callable[[], StudyResults]


def watch(directory: str | Path, *, port: int = 0, refresh: int = 10, started: Callable[[str], None] = print) -> None:
    """Serve the page of a study directory until the study ends, or Ctrl-C; it looks again every `refresh` seconds.

    `started` is told the address. Port 0 takes a free one. A study that has ended already is served until Ctrl-C.
    """
    from apical.study import read  # noqa: PLC0415

    ended = read(directory).finished  # a directory that cannot be read is an error now, not a broken page later
    server = serve(lambda: read(directory), port=port, refresh=refresh)
    started(address(server))
    closed = threading.Event()
    if not ended:
        arguments = (server, lambda: read(directory), refresh, closed)
        threading.Thread(target=end_with_study, args=arguments, daemon=True).start()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        closed.set()
        server.server_close()


def end_with_study(server: ThreadingHTTPServer, read: Read, refresh: float, closed: threading.Event) -> None:
    """Shut a server down once its study is finished or gone, and a browser has had the time to see the last page."""
    while not closed.wait(refresh):
        try:
            ended = read().finished
        except ApicalError:
            ended = True
        if ended and not closed.wait(2 * refresh):
            server.shutdown()
            return


def serve(read: Read, *, port: int = 0, refresh: int = 10) -> ThreadingHTTPServer:
    """A server on localhost that makes the page anew where the study has changed; `serve_forever` starts it."""
    page = LivePage(read, refresh)

    class Handler(_Handler):
        live = page

    try:
        return _Server((HOST, port), Handler)
    except (OSError, OverflowError) as error:
        raise InvalidArgumentError(f"port is {port}, which cannot be used ({error}): choose another, or 0") from error


def address(server: ThreadingHTTPServer) -> str:
    """Where a browser finds it."""
    return f"http://{HOST}:{server.server_address[1]}/"


class LivePage:
    """The page of a study, made again only when a trial has finished since; one thread makes it, the others wait."""

    def __init__(self, read: Read, refresh: int) -> None:
        self._read, self._refresh = read, refresh
        self._lock = threading.Lock()
        self._state: object = None
        self._text = ""

    def text(self) -> str:
        """The page as it stands."""
        with self._lock:
            results = self._read()
            state = (sorted(results.states.items()), results.finished)
            if state != self._state:
                self._text, self._state = self._made(results), state
            return self._text

    def _made(self, results: StudyResults) -> str:
        report = gather([results], crossed=False)
        drawings = {chart.name: draw.draw_svg(chart, report.palette) for chart in report.charts}
        return html.page(report, drawings, refresh=None if results.finished else self._refresh)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    live: ClassVar[LivePage]
    server_version, sys_version, timeout = "apical", "", PATIENCE

    def do_GET(self) -> None:
        if not self._is_ours():
            self._answer(HTTPStatus.FORBIDDEN, "this page is for this machine alone", "text/plain")
        elif self.path.partition("?")[0] != "/":
            self._answer(HTTPStatus.NOT_FOUND, "there is one page here: /", "text/plain")
        else:
            self._page()

    def _is_ours(self) -> bool:
        """True where the browser asked for this very address, and not for a page of somebody else's.

        A name that an attacker points at this machine (DNS rebinding) is in Host; another page that asks is in Origin.
        """
        port = self.server.server_address[1]  # type: ignore[index]
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        ours = [f"{name}:{port}" for name in OURS]
        return len(hosts) == 1 and hosts[0] in ours and all(each in [f"http://{o}" for o in ours] for each in origins)

    def _page(self) -> None:
        try:
            self._answer(HTTPStatus.OK, self.live.text(), "text/html")
        except ApicalError as error:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), "text/plain")

    def _answer(self, status: HTTPStatus, text: str, kind: str) -> None:
        body = text.encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in GUARDS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: the terminal belongs to the study."""
