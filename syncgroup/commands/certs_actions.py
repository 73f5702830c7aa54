"""What `syncgroup certs` does: files in place, then one sentence or one JSON object about them.

DIR/ca.crt DIR/ca.key            the group's CA; its key never leaves DIR
DIR/NAME/ca.crt tls.crt tls.key  one member
"""

from __future__ import annotations

import argparse
import datetime
import json
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sync_runtime.contract.names import CA_CERTIFICATE_KEY, CA_PRIVATE_KEY_KEY
from sync_runtime.identity.ca import Authority, load_ca, make_ca, make_request, renew_at, sign_request
from sync_runtime.identity.certificates import (
    MAX_AUTHORITIES,
    MemberCertificate,
    check_issued,
    read_member,
    read_pem,
)
from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.files import (
    CA_FILE,
    CERTIFICATE_FILE,
    FILES,
    KEY_FILE,
    KEY_MODE,
    PUBLIC_MODE,
    read_folder,
    write_file,
)
from sync_runtime.identity.keys import key_pem, make_key, read_key
from sync_runtime.identity.names import MemberIdentity, Role, standalone_group_uid
from syncgroup.errors import CommandError
from syncgroup.output import say

UNUSABLE_EXIT_CODE = 1
REQUEST_FILE = "tls.csr"
_FOLDER_MODE = 0o700
_TRAINER, _ROLLOUT = get_args(Role)


@dataclass(frozen=True)
class Entry:
    """One member's folder and what became of it."""

    folder: Path
    certificate: MemberCertificate | None
    state: str
    """`valid`, `renewal due`, `expired`, `not yet valid`, or `unusable: …`."""

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        document: dict[str, Any] = {"folder": str(self.folder), "state": self.state}
        if self.certificate is not None:
            identity = self.certificate.identity
            document |= {
                "group": identity.group_uid,
                "role": identity.role,
                "region": identity.region,
                "member": identity.member,
                "notAfter": _time(self.certificate.not_after),
                "sha256": self.certificate.fingerprint,
            }
        return document

    def __str__(self) -> str:
        if self.certificate is None:
            return f"{self.folder}: {self.state}"
        return f"{self.folder}: {self.certificate.identity}, {self.state}, ends {_time(self.certificate.not_after)}"


def init(options: argparse.Namespace, now: datetime.datetime) -> int:
    """A new CA, and members."""
    group_uid = _group_uid(options)
    members = _asked(options, group_uid)
    folder = options.folder
    ours = [folder / CA_CERTIFICATE_KEY, folder / CA_PRIVATE_KEY_KEY]
    _refuse_existing([*ours, *_files_of(folder, members)], options.force)
    authority = make_ca(group_uid, now=now, lifetime=datetime.timedelta(days=options.ca_days))
    _make_folder(folder)
    write_file(ours[1], authority.key_pem, mode=KEY_MODE, replace=options.force)
    write_file(ours[0], authority.certificate_pem, mode=PUBLIC_MODE, replace=options.force)
    return _make_members(options, authority, members, now)


def add(options: argparse.Namespace, now: datetime.datetime) -> int:
    """Further members."""
    authority = _authority(options.folder)
    members = _asked(options, authority.group_uid)
    if not members:
        raise CommandError("nobody to add: give --member NAME@REGION.")
    _refuse_existing(_files_of(options.folder, members), options.force)
    return _make_members(options, authority, members, now)


def request(options: argparse.Namespace, now: datetime.datetime) -> int:
    """A key where it is used, and a request for its certificate."""
    identity = _the_one(options, _group_uid(options))
    _refuse_existing([options.folder / KEY_FILE], options.force)
    key = make_key()
    _make_folder(options.folder)
    write_file(options.folder / KEY_FILE, key_pem(key), mode=KEY_MODE, replace=options.force)
    path = options.folder / REQUEST_FILE
    write_file(path, make_request(identity, key), mode=PUBLIC_MODE, replace=True)
    _say(options, {"request": str(path), "member": identity.member}, f"{path}: {identity} asks for a certificate")
    return 0


def sign(options: argparse.Namespace, now: datetime.datetime) -> int:
    """The certificate for a request."""
    authority = _authority(options.folder)
    identity = _the_one(options, authority.group_uid)
    folder = options.folder / identity.member
    paths = [folder / CERTIFICATE_FILE, folder / CA_FILE]
    _refuse_existing(paths, options.force)
    lifetime = datetime.timedelta(days=options.days)
    certificate = sign_request(authority, options.request.read_bytes(), identity, now=now, lifetime=lifetime)
    _make_folder(folder)
    for path, data in zip(paths, (certificate, authority.certificate_pem), strict=True):
        write_file(path, data, mode=PUBLIC_MODE, replace=options.force)
    files = [str(path) for path in paths]
    _say(options, {"files": files, "member": identity.member}, f"{identity}: carry {' and '.join(files)} to it")
    return 0


def renew(options: argparse.Namespace, now: datetime.datetime) -> int:
    """New certificates for members that exist."""
    authority = _authority(options.folder)
    folders = [options.folder / name for name in options.names] or _member_folders(options.folder)
    # Those who made their own key renew it where it is: `request` and `sign`.
    folders = [folder for folder in folders if options.names or (folder / KEY_FILE).exists()]
    if not folders:
        raise CommandError(f"{options.folder} holds no members with their keys: `syncgroup certs add` makes them.")
    lifetime = datetime.timedelta(days=options.days)
    entries = []
    for folder in folders:
        # Only the name is taken from the old certificate: a half-replaced folder is mended by this.
        (old,) = read_pem((folder / CERTIFICATE_FILE).read_bytes(), str(folder / CERTIFICATE_FILE))
        member = read_member(old)
        if options.due and now < renew_at(member.not_before, member.not_after):
            continue
        key = make_key() if options.new_key else read_key((folder / KEY_FILE).read_bytes())
        _write_member(
            folder, authority, member.identity, key, now=now, lifetime=lifetime, replace=True, with_key=options.new_key
        )
        entries.append(_inspect(folder, now))
    _tell(options, entries, "nothing was due" if not entries else f"renewed {len(entries)} of {len(folders)} members")
    return 0


def show(options: argparse.Namespace, now: datetime.datetime) -> int:
    """Who is who, and until when."""
    folders = _member_folders(options.folder)
    if (options.folder / CERTIFICATE_FILE).exists():
        folders = [options.folder]
    if not folders:
        raise CommandError(f"{options.folder} holds no certificates of members.")
    entries = [_inspect(folder, now) for folder in folders]
    bad = [entry for entry in entries if entry.state not in ("valid", "renewal due")]
    _tell(options, entries, f"{len(entries)} members, {len(bad)} cannot be used" if bad else "")
    return UNUSABLE_EXIT_CODE if bad else 0


def _asked(options: argparse.Namespace, group_uid: str) -> list[MemberIdentity]:
    members = [MemberIdentity(group_uid, _TRAINER, region, name) for name, region in options.trainer]
    members += [MemberIdentity(group_uid, _ROLLOUT, region, name) for name, region in options.member]
    names = [member.member for member in members]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CommandError(f"{twice[0]} is given twice: every member has its own name.")
    return members


def _the_one(options: argparse.Namespace, group_uid: str) -> MemberIdentity:
    members = _asked(options, group_uid)
    if len(members) != 1:
        raise CommandError("one member at a time: give one --trainer or one --member.")
    return members[0]


def _group_uid(options: argparse.Namespace) -> str:
    return options.group_uid or standalone_group_uid(options.namespace, options.group)


def _make_members(
    options: argparse.Namespace, authority: Authority, members: Sequence[MemberIdentity], now: datetime.datetime
) -> int:
    lifetime = datetime.timedelta(days=options.days)
    entries = []
    for identity in members:
        folder = options.folder / identity.member
        _make_folder(folder)
        _write_member(
            folder, authority, identity, make_key(), now=now, lifetime=lifetime, replace=options.force, with_key=True
        )
        entries.append(_inspect(folder, now))
    advice = f"copy each member's folder to its machine; {options.folder / CA_PRIVATE_KEY_KEY} stays here"
    _tell(options, entries, f"group {authority.group_uid}: {advice}")
    return 0


def _write_member(
    folder: Path,
    authority: Authority,
    identity: MemberIdentity,
    key: Ed25519PrivateKey,
    *,
    now: datetime.datetime,
    lifetime: datetime.timedelta,
    replace: bool,
    with_key: bool,
) -> None:
    certificate = sign_request(authority, make_request(identity, key), identity, now=now, lifetime=lifetime)
    if with_key:
        write_file(folder / KEY_FILE, key_pem(key), mode=KEY_MODE, replace=replace)
    if not (folder / CA_FILE).exists() or with_key:
        write_file(folder / CA_FILE, authority.certificate_pem, mode=PUBLIC_MODE, replace=replace)
    write_file(folder / CERTIFICATE_FILE, certificate, mode=PUBLIC_MODE, replace=replace)


def _inspect(folder: Path, now: datetime.datetime) -> Entry:
    try:
        certificate = _read_certificate(folder)
    except IdentityError as error:
        return Entry(folder, None, f"unusable: {error}")
    key = folder / KEY_FILE
    if key.exists() and stat.S_IMODE(key.stat().st_mode) & 0o077:
        return Entry(folder, certificate, "unusable: others may read its key: chmod 600 it")
    if now > certificate.not_after:
        state = "expired"
    elif now < certificate.not_before:
        state = "not yet valid"
    else:
        state = "renewal due" if now >= renew_at(certificate.not_before, certificate.not_after) else "valid"
    return Entry(folder, certificate, state)


def _read_certificate(folder: Path) -> MemberCertificate:
    if (folder / KEY_FILE).exists():
        return read_folder(folder).certificate
    # What `sign` leaves beside the CA: the member has its key elsewhere.
    (leaf,) = read_pem((folder / CERTIFICATE_FILE).read_bytes(), CERTIFICATE_FILE)
    check_issued(leaf, read_pem((folder / CA_FILE).read_bytes(), CA_FILE, MAX_AUTHORITIES))
    return read_member(leaf)


def _authority(folder: Path) -> Authority:
    return load_ca((folder / CA_CERTIFICATE_KEY).read_bytes(), (folder / CA_PRIVATE_KEY_KEY).read_bytes())


def _member_folders(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob(f"*/{CERTIFICATE_FILE}"))


def _files_of(folder: Path, members: Iterable[MemberIdentity]) -> list[Path]:
    return [folder / member.member / name for member in members for name in FILES]


def _refuse_existing(paths: Iterable[Path], force: bool) -> None:
    """All or nothing: looked at before the first file is written."""
    for path in paths:
        if path.exists() and not force:
            raise CommandError(f"{path} exists: nothing is overwritten unless --force is given.")


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)


def _say(options: argparse.Namespace, document: Mapping[str, Any], sentence: str) -> None:
    say(json.dumps(document, indent=2) if options.json else sentence)


def _tell(options: argparse.Namespace, entries: Sequence[Entry], summary: str) -> None:
    if options.json:
        say(json.dumps({"members": [entry.to_document() for entry in entries]}, indent=2))
        return
    for entry in entries:
        say(str(entry))
    if summary:
        say(summary)


def _time(moment: datetime.datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
