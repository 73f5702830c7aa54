"""`syncgroup certs`: folders that work, nothing overwritten unasked, a sentence where something is wrong."""

from __future__ import annotations

import argparse
import json
import os
import stat
from pathlib import Path

import pytest

from sync_runtime.identity.files import CERTIFICATE_FILE, FILES, KEY_FILE, read_folder
from sync_runtime.identity.names import MemberIdentity, standalone_group_uid
from sync_runtime.identity.signing import Signer, TrustedSigners
from sync_runtime.standalone import load_group
from syncgroup.commands import certs as command
from syncgroup.errors import CommandError
from tests.support.identities import DAY, Group, now

UID = standalone_group_uid("default", "demo")


def run(*words: object) -> int:
    parser = argparse.ArgumentParser(prog="syncgroup certs")
    command.configure(parser)
    return command.run(parser.parse_args([str(word) for word in words]))


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    made = tmp_path / "certs"
    assert run("init", made, "--group", "demo", "--trainer", "trainer-0@us-east", "--member", "worker-0@eu-west") == 0
    capsys.readouterr()
    return made


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_init_makes_a_ca_and_members_that_trust_it(folder: Path) -> None:
    trainer, worker = read_folder(folder / "trainer-0"), read_folder(folder / "worker-0")
    assert trainer.identity == MemberIdentity(UID, "trainer", "us-east", "trainer-0")
    assert worker.identity == MemberIdentity(UID, "rollout", "eu-west", "worker-0")
    assert trainer.ca_pem == worker.ca_pem == (folder / "ca.crt").read_bytes()


def test_keys_are_for_their_owner_only_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        run("init", tmp_path / "c", "--group", "demo", "--member", "a@b")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "c").rglob("*.key")}
    assert modes == {"ca.key": 0o600, "tls.key": 0o600}
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700


def test_the_uid_is_the_one_that_group_toml_means(tmp_path: Path) -> None:
    text = """
        group = "demo"
        members = [{name = "t", role = "Trainer", region = "here", listen = "127.0.0.1:7443"}]
    """
    (tmp_path / "group.toml").write_text(text)
    assert load_group(tmp_path / "group.toml").group_uid == UID


def test_the_uid_can_be_given(tmp_path: Path) -> None:
    run("init", tmp_path / "c", "--group", "demo", "--group-uid", "0a-1B", "--member", "a@b")
    assert read_folder(tmp_path / "c" / "a").identity.group_uid == "0a-1B"


@pytest.mark.parametrize("existing", ["ca.crt", "ca.key", "worker-0/tls.key"])
def test_nothing_is_overwritten_unasked_and_nothing_half_done(folder: Path, existing: str) -> None:
    for path in [path for path in contents(folder) if path != folder / existing]:
        path.unlink()
    before = contents(folder)
    with pytest.raises(CommandError, match="--force"):
        run("init", folder, "--group", "demo", "--member", "worker-0@eu-west")
    assert contents(folder) == before
    run("init", folder, "--group", "demo", "--member", "worker-0@eu-west", "--force")
    assert contents(folder)[folder / existing] != before[folder / existing]
    read_folder(folder / "worker-0")


@pytest.mark.parametrize(
    "words",
    [
        ("--member", "Worker@eu-west"),
        ("--member", "worker@EU"),
        ("--member", "../x@eu-west"),
        ("--trainer", "a@b", "--member", "a@c"),
        ("--group-uid", "no uid"),
        ("--namespace", "No namespace"),
        ("--group", "a/b"),
    ],
)
def test_bad_names_are_refused_before_anything_is_written(tmp_path: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        run("init", tmp_path / "c", "--group", "demo", *words)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("words", [("--member", "a"), ("--member", "@b"), ("--days", "0"), ("--days", "x")])
def test_words_of_the_wrong_shape_end_in_usage(tmp_path: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        run("init", tmp_path / "c", "--group", "demo", *words)


def test_add_gives_the_group_another_member(folder: Path) -> None:
    assert run("add", folder, "--member", "worker-1@ap-south") == 0
    assert read_folder(folder / "worker-1").identity.region == "ap-south"
    with pytest.raises(CommandError, match="exists"):
        run("add", folder, "--member", "worker-1@ap-south")
    with pytest.raises(CommandError, match="nobody"):
        run("add", folder)


def test_a_key_can_be_made_where_it_is_used_and_never_leave(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far = tmp_path / "far"
    assert run("request", far, "--group", "demo", "--member", "worker-1@ap-south") == 0
    assert stat.S_IMODE((far / KEY_FILE).stat().st_mode) == 0o600
    assert run("sign", folder, far / "tls.csr", "--member", "worker-1@ap-south", "--json") == 0
    files = json.loads(capsys.readouterr().out.partition("\n")[2])["files"]
    assert not (folder / "worker-1" / KEY_FILE).exists()
    assert run("show", folder) == 0
    assert run("renew", folder) == 0
    with pytest.raises(CommandError, match=r"tls\.key"):
        run("renew", folder, "worker-1")
    for path in map(Path, files):
        path.rename(far / path.name)
    assert read_folder(far).identity == MemberIdentity(UID, "rollout", "ap-south", "worker-1")


def test_a_request_is_signed_only_for_whom_the_signer_names(tmp_path: Path, folder: Path) -> None:
    run("request", tmp_path / "far", "--group", "demo", "--member", "worker-1@ap-south")
    for who in (("--trainer", "worker-1@ap-south"), ("--member", "worker-2@ap-south"), ("--member", "worker-1@here")):
        with pytest.raises(CommandError, match="request is for"):
            run("sign", folder, tmp_path / "far" / "tls.csr", *who)
    with pytest.raises(CommandError, match="one member"):
        run("sign", folder, tmp_path / "far" / "tls.csr", "--member", "a@b", "--member", "c@d")
    assert not (folder / "worker-1").exists()


def test_a_key_that_is_there_is_kept_unless_asked(tmp_path: Path) -> None:
    words = ("request", tmp_path / "far", "--group", "demo", "--member", "worker-1@ap-south")
    run(*words)
    before = (tmp_path / "far" / KEY_FILE).read_bytes()
    with pytest.raises(CommandError, match="--force"):
        run(*words)
    assert (tmp_path / "far" / KEY_FILE).read_bytes() == before
    run(*words, "--force")
    assert (tmp_path / "far" / KEY_FILE).read_bytes() != before


def test_renew_keeps_the_key_so_that_signatures_stay_valid(folder: Path) -> None:
    before = read_folder(folder / "trainer-0")
    signature = Signer.of(before).sign(b"document")
    assert run("renew", folder, "trainer-0") == 0
    after = read_folder(folder / "trainer-0")
    assert after.certificate.fingerprint != before.certificate.fingerprint
    trusted = TrustedSigners(after.ca_pem, UID)
    trusted.add(after.certificate_pem)
    trusted.verify(b"document", signature, now())
    run("renew", folder, "--new-key")
    assert read_folder(folder / "trainer-0").certificate.public_key != before.certificate.public_key


def test_renew_mends_a_half_replaced_folder(folder: Path) -> None:
    (folder / "worker-0" / KEY_FILE).write_bytes((folder / "trainer-0" / KEY_FILE).read_bytes())
    assert run("renew", folder, "worker-0") == 0
    read_folder(folder / "worker-0")


def test_renew_can_leave_alone_what_is_not_due(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("renew", folder, "--due")
    assert capsys.readouterr().out == "nothing was due\n"
    run("init", tmp_path / "empty", "--group", "demo")
    with pytest.raises(CommandError, match="no members"):
        run("renew", tmp_path / "empty")


def test_show_tells_who_is_who(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", folder) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "trainer trainer-0 in us-east, valid, ends " in lines[0]
    assert run("show", folder / "worker-0", "--json") == 0
    (member,) = json.loads(capsys.readouterr().out)["members"]
    assert (member["member"], member["role"], member["state"]) == ("worker-0", "rollout", "valid")


def test_show_says_what_cannot_be_used_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = Group(tmp_path)
    group.member("late", at=now() - 2 * DAY, lifetime=DAY)
    group.member("soon", at=now() - 2 * DAY, lifetime=2.5 * DAY)
    group.member("early", at=now() + 2 * DAY, lifetime=DAY)
    (group.member("open") / KEY_FILE).chmod(0o644)
    (group.member("torn") / CERTIFICATE_FILE).write_bytes(b"")
    assert run("show", tmp_path, "--json") == 1
    found = {Path(member["folder"]).name: member["state"] for member in json.loads(capsys.readouterr().out)["members"]}
    assert found["late"] == "expired"
    assert found["soon"] == "renewal due"
    assert found["early"] == "not yet valid"
    assert "chmod 600" in found["open"]
    assert found["torn"].startswith("unusable: ")


def test_missing_folders_end_in_a_sentence(tmp_path: Path) -> None:
    for words in (("show", tmp_path), ("renew", tmp_path), ("add", tmp_path, "--member", "a@b")):
        with pytest.raises(CommandError):
            run(*words)


def test_a_folder_that_cannot_be_written_ends_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="file"):
        run("init", tmp_path / "file" / "c", "--group", "demo", "--member", "a@b")


def test_every_member_folder_holds_exactly_the_three_files(folder: Path) -> None:
    assert sorted(path.name for path in (folder / "worker-0").iterdir()) == sorted(FILES)
