"""The page of a running study, served to this machine alone."""

import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection, HTTPResponse
from queue import Queue

import pytest

from apical import study as studies
from apical.errors import ApicalError, InvalidArgumentError, StudyError
from apical.report import watch
from apical.report.watching import PATIENCE, address, end_with_study, serve
from apical.study.directory import Store
from apical.study.plan import plan


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, make):
    folder = tmp_path_factory.mktemp("running")
    return make(studies.load("demo"), folder / "study", lambda _: 0.9, keep=lambda t: "relu" in t.row, samples=50)


class Served:
    """A server in a thread; `reads` counts how often the study was looked at."""

    def __init__(self, results) -> None:
        self.results, self.reads, self.error = results, 0, None
        self.server = serve(self._read, refresh=7)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def _read(self):
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.results

    def get(self, path: str = "/", method: str = "GET", **headers: str) -> tuple[HTTPResponse, str]:
        connection = HTTPConnection(*self.server.server_address, timeout=60)
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response, body

    def raw(self, text: str) -> bytes:
        """What is answered to these very bytes; {own} is the address."""
        with self.connected(text) as client:
            return b"".join(iter(lambda: client.recv(1 << 16), b""))

    def connected(self, text: str) -> socket.socket:
        client = socket.create_connection(self.server.server_address, timeout=60)
        client.sendall(text.format(own=f"127.0.0.1:{self.server.server_address[1]}").encode())
        return client

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def served(running) -> Iterator[Served]:
    made = Served(running)
    yield made
    made.close()


def test_the_page_is_served_on_localhost_and_looks_again(served: Served) -> None:
    assert served.server.server_address[0] == "127.0.0.1"
    assert address(served.server).startswith("http://127.0.0.1:")
    response, page = served.get()
    assert response.status == 200
    assert response.getheader("Content-Type") == "text/html; charset=utf-8"
    assert '<meta http-equiv="refresh" content="7">' in page
    assert "Unfinished." in page


def test_the_reason_of_a_failed_trial_is_text(served: Served, tmp_path, make) -> None:
    study = studies.load("demo")
    results = make(study, tmp_path / "s", lambda _: 0.9, keep=lambda t: "relu" in t.row, samples=50)
    failed = next(trial for trial in plan(study).tuning if "relu" not in trial.row)
    Store.open(results.directory).fail(failed.digest, "</td><script>alert(1)</script>\x1b[2J\u202e", "detail")
    served.results = studies.read(results.directory)
    _, page = served.get()
    assert "&lt;/td&gt;&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[2J\\u202e" in page
    assert page.count("<script") == 1
    assert not {"\x1b", "\u202e"} & {*page}


def test_the_page_is_made_again_only_when_the_study_has_changed(served: Served, running) -> None:
    _, first = served.get()
    _, second = served.get()
    assert served.reads == 2
    assert first == second
    served.results = replace(running, finished=True)
    _, third = served.get()
    assert 'http-equiv="refresh"' not in third


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1:80"},
        {"Host": "127.0.0.1"},
        {"Host": ""},
        {"Host": "127.0.0.1:{port}.evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:80"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "null"},
    ],
)
def test_who_asks_for_another_host_or_from_another_page_is_refused(served: Served, headers: dict[str, str]) -> None:
    port = served.server.server_address[1]
    response, text = served.get(**{name: value.format(port=port) for name, value in headers.items()})
    assert (response.status, text) == (403, "this page is for this machine alone")
    assert served.reads == 0


RAW = {
    "GET / HTTP/1.0\r\n\r\n": 403,
    "GET / HTTP/1.1\r\nHost: {own}\r\nHost: {own}\r\n\r\n": 403,
    "GET / HTTP/1.1\r\nHost: {own}\r\nHost: evil.example\r\n\r\n": 403,
    "GET / HTTP/1.1\r\nHost: {own}\r\n .evil.example\r\n\r\n": 403,
    "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n": 403,
    "GET / HTTP/1.1\r\nHost: x@{own}\r\n\r\n": 403,
    "GET / HTTP/1.1\r\nHost: {own}\r\nOrigin: http://{own}\r\nOrigin: http://evil.example\r\n\r\n": 403,
    "GET http://evil.example/ HTTP/1.1\r\nHost: {own}\r\n\r\n": 404,
    "GET http://{own}/ HTTP/1.1\r\nHost: {own}\r\n\r\n": 404,
    "GET //evil.example/ HTTP/1.1\r\nHost: {own}\r\n\r\n": 404,
    "GET /\0 HTTP/1.1\r\nHost: {own}\r\n\r\n": 404,
    "HEAD / HTTP/1.1\r\nHost: {own}\r\n\r\n": 501,
    "OPTIONS / HTTP/1.1\r\nHost: {own}\r\nOrigin: http://evil.example\r\n\r\n": 501,
    "CONNECT evil.example:80 HTTP/1.1\r\nHost: {own}\r\n\r\n": 501,
}


@pytest.mark.parametrize("text", RAW)
def test_requests_that_no_browser_makes_show_nothing(served: Served, text: str) -> None:
    assert served.raw(text).startswith(f"HTTP/1.0 {RAW[text]} ".encode())
    assert served.reads == 0


def test_a_client_that_never_ends_its_request_stops_nobody(served: Served) -> None:
    with served.connected("GET / HTTP/1.1\r\nHost: "), served.connected(""):
        assert served.get()[0].status == 200
        served.close()
        assert not served.thread.is_alive()


def test_a_client_that_says_nothing_is_sent_away(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert served.server.RequestHandlerClass.timeout == PATIENCE
    monkeypatch.setattr(served.server.RequestHandlerClass, "timeout", 0.01)
    assert served.raw("GET / HTTP/1.1\r\nHost: ") == b""


def test_a_browser_that_goes_away_leaves_no_traceback(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = served.connected("")
    answering: Queue[threading.Thread] = Queue()

    class Left:
        def text(self) -> str:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, at once
            client.close()
            answering.put(threading.current_thread())
            return "the page"

    monkeypatch.setattr(served.server.RequestHandlerClass, "live", Left())
    client.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{served.server.server_address[1]}\r\n\r\n".encode())
    answering.get(timeout=60).join(60)
    assert capsys.readouterr().err == ""


def test_this_machine_is_known_by_its_two_names(served: Served) -> None:
    ours = f"localhost:{served.server.server_address[1]}"
    response, _ = served.get("/?x=1", Host=ours, Origin=f"http://{ours}")
    assert response.status == 200
    assert "frame-ancestors 'none'" in response.getheader("Content-Security-Policy")


@pytest.mark.parametrize("path", ["/etc/passwd", "/../study.json", "/%2e%2e/study.json", "/trials", "study.json"])
def test_there_is_no_path_but_the_page(served: Served, path: str) -> None:
    assert served.get(path)[0].status == 404
    assert served.get("/", method="POST")[0].status == 501
    assert served.reads == 0


@pytest.mark.parametrize("ending", ["finished", "gone"])
def test_the_server_ends_with_its_study(served: Served, running, ending: str) -> None:
    states = iter([running, replace(running, finished=True) if ending == "finished" else StudyError("gone")])

    def read():
        state = next(states)
        if isinstance(state, StudyError):
            raise state
        return state

    end_with_study(served.server, read, 0, threading.Event())
    served.thread.join(60)
    assert not served.thread.is_alive()


def test_a_server_that_is_closed_is_not_shut_down_again(served: Served, running) -> None:
    closed = threading.Event()
    closed.set()
    end_with_study(served.server, lambda: replace(running, finished=True), 60, closed)
    assert served.get()[0].status == 200


def test_a_study_that_cannot_be_read_is_said_not_hidden(served: Served) -> None:
    served.error = StudyError("the directory is gone")
    response, text = served.get()
    assert (response.status, text) == (500, "the directory is gone")


def test_watching_nothing_is_an_error_at_once(tmp_path) -> None:
    with pytest.raises(ApicalError):
        watch(tmp_path / "nothing")


def test_a_port_that_cannot_be_used_is_an_error(served: Served, running) -> None:
    with pytest.raises(InvalidArgumentError, match="which cannot be used"):
        serve(lambda: running, port=served.server.server_address[1])


def test_watch_serves_until_it_is_interrupted(running, monkeypatch) -> None:
    from apical.report import watching

    def interrupted(self, poll_interval: float = 0.5) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watching.ThreadingHTTPServer, "serve_forever", interrupted)
    told: list[str] = []
    watch(running.directory, started=told.append)
    assert told[0].startswith("http://127.0.0.1:")
