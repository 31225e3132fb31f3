"""Documents on a cluster: stored where other users cannot change them, and checked before use."""

import os
import tempfile

import pytest

from remat.comparing import cluster


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The temporary folder of the machine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cluster._fresh_folder.cache_clear()
    yield tmp_path
    cluster._fresh_folder.cache_clear()


def kept(document=b"[1]", source="a.json"):
    path = cluster._document_here(document, source)
    with open(path, "rb") as file:
        return path, file.read()


def test_a_document_is_kept_once(place):
    path, content = kept()
    assert content == b"[1]"
    assert os.path.dirname(path) == str(place / f"remat-{os.getuid()}")
    assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700
    written = os.stat(path).st_mtime_ns, os.stat(path).st_ino
    assert kept() == (path, content)
    assert (os.stat(path).st_mtime_ns, os.stat(path).st_ino) == written
    assert kept(b"[1]", "b.json.gz")[0].endswith(".json.gz")


def test_what_another_has_put_there_is_not_taken(place):
    path, _ = kept()
    with open(path, "wb") as file:
        file.write(b"[666]")
    assert kept() == (path, b"[1]")
    os.unlink(path)
    other = place / "other"
    other.write_bytes(b"[1]")
    os.symlink(other, path)
    assert kept() == (path, b"[1]")
    assert not os.path.islink(path)


@pytest.mark.parametrize("how", ["link", "open", "file"])
def test_a_folder_that_is_not_ours_alone_is_not_used(place, how):
    folder = place / f"remat-{os.getuid()}"
    if how == "link":
        (place / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(place / "elsewhere")
    elif how == "open":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder.write_text("")
    path, content = kept()
    assert content == b"[1]"
    assert os.path.dirname(path) != str(folder)
    assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700
    assert kept()[0] == path


def test_a_folder_of_another_user_is_not_used(place, monkeypatch):
    me = os.getuid()
    (place / f"remat-{me + 1}").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    assert os.path.dirname(kept()[0]) != str(place / f"remat-{me + 1}")
