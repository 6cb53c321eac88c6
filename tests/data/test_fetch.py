"""Downloading, against a server on this machine: checked, continued, and never half there under its name."""

import gzip
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from apical import data
from apical.data.archives import fetch
from apical.data.sets import fashion_mnist
from apical.errors import DataError

CONTENT = bytes(i % 251 for i in range(300_000))
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.asked.append(self.headers.get("Range"))
        body = server.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        start = 0
        if (given := self.headers.get("Range")) and server.ranges:
            start = int(given.removeprefix("bytes=").rstrip("-"))
            if start >= len(body):
                self.send_error(416)
                return
            self.send_response(206)
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start : server.stop_after])
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    made = HTTPServer(("127.0.0.1", 0), Handler)
    made.files, made.asked, made.ranges, made.stop_after = {}, [], True, None
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    made.url = f"http://127.0.0.1:{made.server_port}"
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def get(server, tmp_path, *, name="/x", sha256=SHA256, gunzip=False, seen=None):
    report = (lambda *c: seen.append(c)) if seen is not None else (lambda *_: None)
    fetch(server.url + name, tmp_path / "x", sha256=sha256, progress=report, gunzip=gunzip)


def test_a_file_arrives_whole_with_progress(server, tmp_path):
    server.files["/x"] = CONTENT
    seen = []
    get(server, tmp_path, seen=seen)
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert seen[-1] == ("downloading x", 300_000, 300_000)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_gzip_is_unpacked_and_checked_by_its_content(server, tmp_path):
    server.files["/x"] = gzip.compress(CONTENT, mtime=7)
    get(server, tmp_path, gunzip=True)
    assert (tmp_path / "x").read_bytes() == CONTENT


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_download_is_continued(server, tmp_path, ranges):
    server.files["/x"], server.stop_after, server.ranges = CONTENT, 100_000, ranges
    with pytest.raises(DataError, match=r"cannot download|run the command again"):
        get(server, tmp_path)
    assert not (tmp_path / "x").exists()
    have = (tmp_path / "x.part").stat().st_size
    assert have > 0
    server.stop_after = None
    get(server, tmp_path)
    assert server.asked == [None, f"bytes={have}-"]
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_part_that_is_already_whole_is_used(server, tmp_path):
    server.files["/x"] = CONTENT
    (tmp_path / "x.part").write_bytes(CONTENT)
    get(server, tmp_path)
    assert (tmp_path / "x").read_bytes() == CONTENT


@pytest.mark.parametrize("body", [b"<html>sign in</html>", CONTENT[:-1] + b"x", b""])
def test_other_bytes_are_refused_and_leave_nothing(server, tmp_path, body):
    server.files["/x"] = body
    with pytest.raises(DataError, match="has the wrong sha256"):
        get(server, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_something_else_than_gzip_is_refused(server, tmp_path):
    server.files["/x"] = CONTENT
    with pytest.raises(DataError, match="not the expected gzip"):
        get(server, tmp_path, gunzip=True)
    assert list(tmp_path.iterdir()) == []


def test_errors_of_the_network_are_one_sentence(server, tmp_path):
    with pytest.raises(DataError, match=r"cannot download .*404"):
        get(server, tmp_path)
    with pytest.raises(DataError, match="cannot download") as caught:
        fetch("http://127.0.0.1:9/x", tmp_path / "x", sha256=SHA256, progress=lambda *_: None)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_fashion_mnist_is_downloaded_when_it_is_nowhere(server, home, fabricate, monkeypatch):
    """The real code path with its addresses and hashes pointed at a small copy."""
    root = fabricate.fashion_mnist()
    hashes = {}
    for name in fashion_mnist.FILES:
        packed = (root / f"{name}.gz").read_bytes()
        server.files[f"/{name}.gz"] = packed
        hashes[name] = hashlib.sha256(gzip.decompress(packed)).hexdigest()
    monkeypatch.setattr(fashion_mnist, "URL", server.url)
    monkeypatch.setattr(fashion_mnist, "FILES", hashes)
    from dataclasses import replace

    from apical.data import registry

    lonely = replace(registry.get("fashion-mnist"), system_folders=())
    monkeypatch.setitem(registry.RECIPES, "fashion-mnist", lonely)
    loaded = data.load("fashion-mnist", partial=True)
    assert [len(s) for s in loaded.splits.values()] == [50, 10, 10]
    assert sorted(p.name for p in (home / "raw" / "fashion-mnist").iterdir()) == sorted(fashion_mnist.FILES)
