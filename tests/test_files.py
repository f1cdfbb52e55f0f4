"""Files are as they were or written whole."""

from __future__ import annotations

import os
import stat

import pytest

from example_reports import REPORTS
from gradproof._data import files
from gradproof.errors import UsageError


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    file = tmp_path / "report.json"
    files.write(file, "one", "path")
    files.write(file, "two é", "path")
    assert file.read_text(encoding="utf-8") == "two é"
    assert os.listdir(tmp_path) == ["report.json"]


@pytest.mark.parametrize("error", [OSError("No space left on device"), KeyboardInterrupt()])
def test_where_writing_ends_early_the_old_file_is_whole(tmp_path, monkeypatch, error):
    file = tmp_path / "report.json"
    file.write_text("the old one")

    def full(_: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises((UsageError, KeyboardInterrupt)):
        files.write(file, "the new one", "path")
    assert file.read_text() == "the old one"
    assert os.listdir(tmp_path) == ["report.json"]


def test_who_reads_meanwhile_sees_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "report.json"
    file.write_text("the old one")
    seen = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(file.read_text()))
    files.write(file, "the new one", "path")
    assert (seen, file.read_text()) == (["the old one"], "the new one")


@pytest.mark.skipif(os.name != "posix", reason="modes, links and pipes of POSIX")
def test_a_link_and_the_mode_stay(tmp_path):
    file, link = tmp_path / "real.json", tmp_path / "link.json"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    files.write(link, "new", "path")
    assert (link.is_symlink(), file.read_text()) == (True, "new")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    files.write(os.devnull, "nothing is renamed there", "path")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_every_report_is_written_so(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(files, "write", lambda path, text, option: written.append(str(path)))
    REPORTS["passed"].save(tmp_path / "a.json")
    assert written == [str(tmp_path / "a.json")]


def test_a_missing_folder_is_made_or_refused(tmp_path):
    files.prepare(str(tmp_path / "new" / "folder" / "report.json"), "--json")
    assert (tmp_path / "new" / "folder").is_dir()
    (tmp_path / "file").touch()
    for place in ("file/report.json", "new"):
        with pytest.raises(UsageError, match=r"--json: cannot write '.*'"):
            files.prepare(str(tmp_path / place), "--json")
    with pytest.raises(UsageError, match="--json: cannot write"):
        files.prepare("a\0b", "--json")
