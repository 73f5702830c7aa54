"""Credentials of several stores in one folder: each store reads its own, and no other's."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from sync_runtime.errors import SettingsError
from sync_runtime.transport.object_store.errors import StoreError
from sync_runtime.transport.object_store.opening import open_seal, open_store
from sync_runtime.transport.object_store.remote import read_credentials


def folder_with(folder: Path, **files: str) -> Path:
    for name, value in files.items():
        (folder / name.replace("__", ".")).write_text(value)
    return folder


def test_a_store_reads_the_files_that_begin_with_its_own_keys(tmp_path: Path) -> None:
    folder = folder_with(
        tmp_path,
        AWS_ACCESS_KEY_ID="ours",
        asia__AWS_ACCESS_KEY_ID="of asia",
        asia__AWS_REGION="a",
        asia__two__AWS_ACCESS_KEY_ID="of another",
    )
    assert read_credentials(folder) == {"aws_access_key_id": "ours"}
    assert read_credentials(folder, "asia.") == {"aws_access_key_id": "of asia", "aws_region": "a"}
    assert read_credentials(folder, "asia.two.") == {"aws_access_key_id": "of another"}
    assert read_credentials(folder, "none.") == {}


def test_links_of_a_mounted_secret_are_no_credentials(tmp_path: Path) -> None:
    (tmp_path / "..2027_01_31").mkdir()
    (tmp_path / "..2027_01_31" / "AWS_REGION").write_text("r")
    (tmp_path / "..data").symlink_to("..2027_01_31")
    (tmp_path / "AWS_REGION").symlink_to("..data/AWS_REGION")
    assert read_credentials(tmp_path) == {"aws_region": "r"}


def test_a_group_key_seals_the_store_that_it_is_for(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, asia__SYNCGROUP_STORE_KEY=secrets.token_hex(32))
    uid = "5c1c0a9e-0000-4000-8000-000000000001"
    assert open_seal(uid, folder).close("latest", b"x") == b"x"
    assert bytes(open_seal(uid, folder, "asia.").close("latest", b"x")) != b"x"


@pytest.mark.parametrize(
    "files",
    [
        {"GOOGLE_SERVICE_ACCOUNT_KEY": "no JSON"},
        {"GOOGLE_SERVICE_ACCOUNT_KEY": "{}"},
        {"GOOGLE_SERVICE_ACCOUNT_KEY": '{"private_key": "x", "private_key_id": "a", "client_email": "a@b"}'},
        {"GOOGLE_NO_SUCH_SETTING": "x"},
    ],
)
def test_a_secret_that_cannot_open_googles_store_is_told_before_anything_is_asked(
    tmp_path: Path, files: dict[str, str]
) -> None:
    with pytest.raises(SettingsError, match=r"gs://weights cannot be opened with its Secret: \S+"):
        open_store("gs://weights", "x", folder_with(tmp_path, **files))


@pytest.mark.parametrize(
    ("url", "setting"), [("gs://weights", "GOOGLE_BASE_URL"), ("az://weights", "AZURE_STORAGE_ENDPOINT")]
)
def test_a_server_that_is_named_with_http_is_asked_and_told_of_when_it_is_away(
    tmp_path: Path, url: str, setting: str
) -> None:
    kind = setting.partition("_")[0]
    more = {"AZURE_STORAGE_ACCOUNT_NAME": "a"} if kind == "AZURE" else {}
    folder = folder_with(tmp_path, **{f"{kind}_SKIP_SIGNATURE": "true", setting: "http://127.0.0.1:9"}, **more)
    with pytest.raises(StoreError, match=r"the store is away.*error sending request"):
        open_store(url, "x", folder).get("latest", 1)
