from __future__ import annotations

import pytest

from sync_runtime.contract.stores import GROUP_KEY, MAX_CREDENTIAL_BYTES, address_of, secret_problem, used_keys
from sync_runtime.contract.sync import ObjectStore
from sync_runtime.transport.object_store.seal import GROUP_KEY_NAME

KEYS = {"AWS_ACCESS_KEY_ID": b"a", "AWS_SECRET_ACCESS_KEY": b"b"}
SEAL = {GROUP_KEY: b"0f" * 32}


@pytest.mark.parametrize(
    ("url", "data"),
    [
        ("s3://weights", KEYS),
        ("s3://weights", KEYS | SEAL | {"AWS_REGION": b"eu-west-1", "note": b"ours"}),
        ("https://minio.example/weights", {key.lower(): value for key, value in KEYS.items()}),
        ("s3://weights", {"AWS_SKIP_SIGNATURE": b"true"}),
        ("gs://weights", {"GOOGLE_SERVICE_ACCOUNT_KEY": b"{}"}),
        ("az://weights", {"AZURE_STORAGE_ACCOUNT_NAME": b"a", "AZURE_STORAGE_ACCOUNT_KEY": b"b"}),
        ("az://weights", {"AZURE_STORAGE_ACCOUNT_NAME": b"a", "AZURE_STORAGE_SAS_KEY": b"sig"}),
        ("s3://weights", SEAL),  # sealed, and opened by the pods' own identity
        ("file:///weights", SEAL),
    ],
)
def test_credentials_that_open_a_store_are_whole(url: str, data: dict[str, bytes]) -> None:
    assert secret_problem(url, data) is None


@pytest.mark.parametrize(
    ("url", "data", "words"),
    [
        ("s3://weights", {}, "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"),
        ("s3://weights", {"AWS_ACCESS_KEY_ID": b"a"}, "it has no AWS_SECRET_ACCESS_KEY"),
        ("s3://weights", KEYS | {"AWS_SECRET_ACCESS_KEY": b" \n"}, "it has no AWS_SECRET_ACCESS_KEY"),
        ("http://minio.example/weights", {"GOOGLE_SERVICE_ACCOUNT_KEY": b"{}"}, "AWS_ACCESS_KEY_ID"),
        ("gs://weights", KEYS, "it has no GOOGLE_SERVICE_ACCOUNT_KEY"),
        ("az://weights", {"AZURE_STORAGE_ACCOUNT_KEY": b"b"}, "it has no AZURE_STORAGE_ACCOUNT_NAME"),
        ("s3://weights", KEYS | {GROUP_KEY: b"short"}, "must be 64 hexadecimal digits"),
        ("s3://weights", SEAL | {"AWS_ACCESS_KEY_ID": b"a"}, "it has no AWS_SECRET_ACCESS_KEY"),
        ("s3://weights", KEYS | {"AWS_REGION": b"x" * (MAX_CREDENTIAL_BYTES + 1)}, "too long for a credential"),
        ("file:///weights", {}, "remove secretRef"),
    ],
)
def test_credentials_that_cannot_open_a_store_are_named(url: str, data: dict[str, bytes], words: str) -> None:
    problem = secret_problem(url, data)
    assert problem is not None
    assert words in problem


def test_only_what_a_store_reads_is_taken_out_of_a_secret() -> None:
    data = dict.fromkeys(("AWS_ACCESS_KEY_ID", "aws_region", GROUP_KEY, "password", "GOOGLE_SERVICE_ACCOUNT_KEY"), "")
    assert used_keys("s3://weights", data) == ("AWS_ACCESS_KEY_ID", GROUP_KEY, "aws_region")
    assert used_keys("gs://weights", data) == ("GOOGLE_SERVICE_ACCOUNT_KEY", GROUP_KEY)
    assert used_keys("file:///weights", data) == (GROUP_KEY,)


def test_operator_and_sidecar_call_the_group_key_alike() -> None:
    assert GROUP_KEY == GROUP_KEY_NAME


@pytest.mark.parametrize(
    ("url", "prefix", "address"),
    [
        ("s3://weights", None, "s3://weights/ml/grpo"),
        ("s3://weights/", "runs/8b", "s3://weights/runs/8b"),
        ("https://who:what@minio.example:9000/weights", "a", "https://minio.example:9000/weights/a"),
        ("file:///mnt/weights", "a", "file:///mnt/weights/a"),
    ],
)
def test_an_address_for_people_has_the_prefix_and_no_password(url: str, prefix: str | None, address: str) -> None:
    assert address_of(ObjectStore(url=url, prefix=prefix), "ml", "grpo") == address
