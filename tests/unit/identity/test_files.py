"""A member's folder: one consistent set or an error, however it is replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sync_runtime.identity.errors import IdentityFilesError, WrongMemberError
from sync_runtime.identity.files import CERTIFICATE_FILE, FILES, KEY_FILE, read_folder, write_file
from sync_runtime.identity.keys import key_pem, make_key
from sync_runtime.identity.watch import CertificateWatch
from tests.support.identities import Group


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path)


def fingerprint(watch: CertificateWatch) -> str:
    return watch.current().files.certificate.fingerprint


def test_a_folder_says_who_its_member_is(group: Group) -> None:
    files = read_folder(group.trainer())
    assert files.identity == group.identity("trainer-0", "trainer", "us-east")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_or_broken_file_is_named(group: Group, name: str) -> None:
    folder = group.trainer()
    (folder / name).write_bytes(b"nonsense")
    with pytest.raises(IdentityFilesError):
        read_folder(folder)
    (folder / name).unlink()
    with pytest.raises(IdentityFilesError, match=name):
        read_folder(folder)
    (folder / name).mkdir()
    with pytest.raises(IdentityFilesError, match=name):
        read_folder(folder)


def test_a_key_of_somebody_else_is_noticed(group: Group) -> None:
    folder = group.trainer()
    (folder / KEY_FILE).write_bytes(key_pem(make_key()))
    with pytest.raises(IdentityFilesError, match="half replaced"):
        read_folder(folder)


def test_a_certificate_of_another_ca_is_noticed(tmp_path: Path, group: Group) -> None:
    folder = group.trainer()
    (folder / "ca.crt").write_bytes(Group(tmp_path / "x").authority.certificate_pem)
    with pytest.raises(IdentityFilesError, match="CA"):
        read_folder(folder)


def test_keys_are_born_private_and_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    write_file(path, b"1", mode=0o600, replace=False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_file(path, b"2", mode=0o600, replace=False)
    assert path.read_bytes() == b"1"
    write_file(path, b"2", mode=0o600, replace=True)
    assert path.read_bytes() == b"2"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.key"]


def test_a_renewed_certificate_is_seen_at_the_next_look(group: Group) -> None:
    folder = group.trainer()
    watch = CertificateWatch(folder)
    before, contexts = fingerprint(watch), watch.current()
    assert watch.current() is contexts
    group.trainer()
    assert fingerprint(watch) != before
    assert watch.server_context() is not contexts.server
    assert watch.client_context() is not contexts.client
    assert watch.problem is None
    assert watch.expires_at == read_folder(folder).certificate.not_after


def test_a_half_replaced_set_changes_nothing_until_it_is_whole(tmp_path: Path, group: Group) -> None:
    folder = group.trainer()
    watch = CertificateWatch(folder)
    before = fingerprint(watch)
    elsewhere = Group(tmp_path / "next", authority=group.authority).trainer()
    (elsewhere / KEY_FILE).replace(folder / KEY_FILE)
    assert fingerprint(watch) == before
    assert watch.problem is not None
    assert watch.problem.reason == "BadFiles"
    (elsewhere / CERTIFICATE_FILE).replace(folder / CERTIFICATE_FILE)
    assert fingerprint(watch) != before
    assert watch.problem is None


def test_files_that_vanish_leave_the_last_good_set(group: Group) -> None:
    folder = group.trainer()
    watch = CertificateWatch(folder)
    before = fingerprint(watch)
    (folder / CERTIFICATE_FILE).unlink()
    assert fingerprint(watch) == before
    assert watch.problem is not None
    group.trainer()
    assert fingerprint(watch) != before


def test_a_member_never_becomes_another_one(group: Group) -> None:
    folder = group.trainer()
    watch = CertificateWatch(folder)
    before = fingerprint(watch)
    other = group.member("worker-0")
    for name in FILES:
        (other / name).replace(folder / name)
    assert fingerprint(watch) == before
    assert isinstance(watch.problem, WrongMemberError)
    assert watch.identity.member == "trainer-0"


def kubernetes_volume(folder: Path, source: Path, revision: str) -> None:
    """Fill a volume as the kubelet does: a new folder, then `..data` swapped onto it, then the old one deleted."""
    folder.mkdir(exist_ok=True)
    (folder / revision).mkdir()
    for name in FILES:
        (folder / revision / name).write_bytes((source / name).read_bytes())
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    (folder / "..data_tmp").symlink_to(revision)
    old = os.readlink(folder / "..data") if (folder / "..data").is_symlink() else None
    (folder / "..data_tmp").replace(folder / "..data")
    if old is not None:
        for path in (folder / old).iterdir():
            path.unlink()
        (folder / old).rmdir()


def test_the_swapped_link_of_a_kubernetes_volume_is_followed(tmp_path: Path, group: Group) -> None:
    volume = tmp_path / "volume"
    kubernetes_volume(volume, group.trainer(), "..2027_01_01")
    watch = CertificateWatch(volume)
    before = fingerprint(watch)
    kubernetes_volume(volume, group.trainer(), "..2027_01_02")
    assert fingerprint(watch) != before
    assert watch.problem is None


def test_a_watch_needs_one_good_set_to_begin_with(tmp_path: Path) -> None:
    with pytest.raises(IdentityFilesError, match="certs init"):
        CertificateWatch(tmp_path)
