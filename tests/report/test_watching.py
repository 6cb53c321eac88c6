"""The page of a running study, served to this machine alone."""

import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse

import pytest

from apical import study as studies
from apical.errors import ApicalError, InvalidArgumentError, StudyError
from apical.report import watch
from apical.report.watching import address, serve


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

    def get(self, path: str = "/", host: str | None = None) -> tuple[HTTPResponse, str]:
        connection = HTTPConnection(*self.server.server_address, timeout=60)
        connection.request("GET", path, headers={} if host is None else {"Host": host})
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response, body

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


def test_the_page_is_made_again_only_when_the_study_has_changed(served: Served, running) -> None:
    from dataclasses import replace

    _, first = served.get()
    _, second = served.get()
    assert served.reads == 2
    assert first == second
    served.results = replace(running, finished=True)
    _, third = served.get()
    assert 'http-equiv="refresh"' not in third


def test_other_names_and_other_pages_are_refused(served: Served) -> None:
    assert served.get(host="evil.example:80")[0].status == 403
    assert served.get("/etc/passwd")[0].status == 404
    assert served.reads == 0
    assert served.get("/?x=1", host=f"localhost:{served.server.server_address[1]}")[0].status == 200


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
