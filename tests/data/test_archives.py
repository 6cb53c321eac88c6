"""Unpacking: plain files inside the folder, or one sentence and nothing on disk."""

import io
import stat
import tarfile
import zipfile

import pytest

from apical.data.archives import Budget, unpack
from apical.errors import DataError


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return path


def make_tar(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(content), "/etc/passwd"
            archive.addfile(info, io.BytesIO(content))
    return path


def refused(archive, tmp_path, match, **how):
    before = sorted(p for p in tmp_path.rglob("*"))
    with pytest.raises(DataError, match=match) as caught:
        unpack(archive, tmp_path / "out", **how)
    assert "\n" not in str(caught.value)
    assert sorted(p for p in tmp_path.rglob("*")) == before


def test_files_and_folders_come_out_as_they_went_in(tmp_path):
    archive = make_zip(tmp_path / "a.zip", [("d/", b"", 0o40755), ("d/x.txt", b"one", 0o100644), ("y", b"two", 0)])
    unpack(archive, tmp_path / "zip")
    members = [(".", tarfile.DIRTYPE, b""), ("d", tarfile.DIRTYPE, b""), ("./d/x.txt", tarfile.REGTYPE, b"one")]
    archive = make_tar(tmp_path / "a.tar.gz", members)
    seen = []
    unpack(archive, tmp_path / "tar", progress=lambda *report: seen.append(report))
    assert (tmp_path / "zip/d/x.txt").read_bytes() == (tmp_path / "tar/d/x.txt").read_bytes() == b"one"
    assert (tmp_path / "zip/y").read_bytes() == b"two"
    assert seen


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "C:/x", "a\\..\\x"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_members_that_leave_the_folder_are_refused(name, kind, tmp_path):
    if kind == "zip":
        archive = make_zip(tmp_path / "a.zip", [("ok", b"1", 0), (name, b"2", 0)])
    else:
        archive = make_tar(tmp_path / "a.tar.gz", [("ok", tarfile.REGTYPE, b"1"), (name, tarfile.REGTYPE, b"2")])
    refused(archive, tmp_path, "points outside its folder")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_tar_are_refused(kind, tmp_path):
    refused(make_tar(tmp_path / "a.tar.gz", [("x", kind, b"")]), tmp_path, "link or a device")


@pytest.mark.parametrize("mode", [stat.S_IFLNK | 0o777, stat.S_IFCHR | 0o666, stat.S_IFIFO | 0o666])
def test_links_and_devices_in_zip_are_refused(mode, tmp_path):
    refused(make_zip(tmp_path / "a.zip", [("x", b"/etc/passwd", mode)]), tmp_path, "link or a device")


def test_bombs_are_refused_by_size_and_by_count(tmp_path):
    big = make_zip(tmp_path / "big.zip", [("zeros", bytes(1 << 20), 0)])
    refused(big, tmp_path, r"more than 524,288 bytes: .*--limits unpacked=5242880", budget=Budget(bytes=1 << 19))
    tar = make_tar(tmp_path / "big.tar.gz", [("zeros", tarfile.REGTYPE, bytes(1 << 20))])
    refused(tar, tmp_path, r"more than 524,288 bytes: .*--limits unpacked=5242880", budget=Budget(bytes=1 << 19))
    many = make_zip(tmp_path / "many.zip", [(str(i), b"", 0) for i in range(100)])
    refused(many, tmp_path, r"more than 99 files: .*--limits files=990", budget=Budget(files=99))


def test_the_same_member_twice_is_refused(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate name"):
        archive = make_zip(tmp_path / "a.zip", [("x", b"1", 0), ("x", b"2", 0)])
    refused(archive, tmp_path, "twice")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_truncated_archives_are_refused(kind, share, tmp_path):
    noise = [(f"f{i}", bytes((i * j * 7919) % 251 for j in range(3000))) for i in range(5)]
    if kind == "zip":
        archive = make_zip(tmp_path / "a.zip", [(n, c, 0) for n, c in noise])
    else:
        archive = make_tar(tmp_path / "a.tar.gz", [(n, tarfile.REGTYPE, c) for n, c in noise])
        if kind == "tar":
            import gzip

            archive = tmp_path / "a.tar"
            archive.write_bytes(gzip.decompress((tmp_path / "a.tar.gz").read_bytes()).rstrip(b"\0"))
    data = archive.read_bytes()
    archive.write_bytes(data[: int(len(data) * share)])
    refused(archive, tmp_path, "damaged archive|truncated|cannot unpack")


def test_a_web_page_or_a_pointer_instead_of_an_archive_is_named(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"<!DOCTYPE html><html>sign in</html>")
    refused(tmp_path / "a.zip", tmp_path, "web page")
    (tmp_path / "a.zip").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    refused(tmp_path / "a.zip", tmp_path, "Git LFS pointer")


def test_a_full_disk_is_said_and_cleaned_up(tmp_path):
    import resource

    archive = make_zip(tmp_path / "a.zip", [("zeros", bytes(1 << 20), 0)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        refused(archive, tmp_path, "cannot unpack .*File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
