"""Files and folders that appear whole or not at all."""

from pathlib import Path

import pytest

from sync_runtime.errors import FormatError, LimitError, SettingsError
from sync_runtime.offline.durable import beside, durable_file, durable_folder, mapped, read_small


class BrokenError(Exception):
    """Something that goes wrong while writing."""


def fail_in_a_file(path: Path) -> None:
    with durable_file(path) as file:
        file.write(b"half")
        raise BrokenError


def fail_in_a_folder(path: Path) -> None:
    with durable_folder(path) as folder:
        (folder / "a").write_bytes(b"half")
        raise BrokenError


def test_a_file_takes_its_place_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with durable_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    with pytest.raises(BrokenError):
        fail_in_a_file(path)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"file": b"new"}


def test_a_folder_takes_its_place_when_it_is_complete(tmp_path: Path) -> None:
    with pytest.raises(BrokenError):
        fail_in_a_folder(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []
    with durable_folder(tmp_path / "folder") as folder:
        (folder / "a").write_bytes(b"whole")
        assert not (tmp_path / "folder").exists()
    assert (tmp_path / "folder" / "a").read_bytes() == b"whole"
    with pytest.raises(SettingsError, match="not overwritten"), durable_folder(tmp_path / "folder"):
        pytest.fail("a folder that exists is not touched")


def test_a_link_that_leads_nowhere_is_not_overwritten_either(tmp_path: Path) -> None:
    (tmp_path / "folder").symlink_to("nowhere")
    with pytest.raises(SettingsError), durable_folder(tmp_path / "folder"):
        pytest.fail("a link that exists is not touched")


@pytest.mark.parametrize(
    "name", ["../x", "/etc/hostname", "a/b", ".", "..", "", "a\0b", "a\nb", "\ud800", "missing", "x" * 300, 7, None]
)
def test_names_that_are_no_files_beside_are_refused(tmp_path: Path, name: object) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "x").write_bytes(b"outside")
    with pytest.raises(FormatError, match="file"):
        beside(tmp_path / "inside", name, "a document")


def test_a_file_beside_is_found(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"here")
    assert beside(tmp_path, "x", "a document") == tmp_path / "x"


def test_documents_above_their_limit_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_small(tmp_path / "x", 5) == b"12345"
    with pytest.raises(LimitError, match="5 bytes"):
        read_small(tmp_path / "x", 4)


def test_an_empty_file_is_mapped_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    assert len(mapped(tmp_path / "x")) == 0
