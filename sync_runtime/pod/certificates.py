"""The certificate of a member in a pod: asked for, checked, put in place, and renewed for as long as the sidecar runs.

The key is made here and never leaves the folder; it stays through renewals, so that what a trainer signed outlives the
certificate it was signed under. A request that is denied or fails is told (`trouble`) and asked again under another
name, with back-off. Who may have which certificate is the operator's decision.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import random
import secrets
from pathlib import Path
from typing import Final

from sync_runtime.contract.names import GroupKey, certificate_request_name, group_labels
from sync_runtime.identity.ca import make_request
from sync_runtime.identity.certificates import MAX_AUTHORITIES, MAX_BUNDLE_BYTES, read_pem
from sync_runtime.identity.errors import IdentityError
from sync_runtime.identity.files import (
    CA_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    KEY_MODE,
    PUBLIC_MODE,
    IdentityFiles,
    parse_files,
    write_file,
)
from sync_runtime.identity.keys import key_pem, make_key, read_key
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.membership.api import ClusterApi, refused
from sync_runtime.membership.errors import MembershipError
from sync_runtime.membership.keeper import next_pause_s
from sync_runtime.pod import requests
from sync_runtime.pod.errors import NoCertificateError
from sync_runtime.settings import SidecarSettings

LOOK_S: Final = 2.0
"""How often the trust bundle and the clock are looked at."""
MOST_POLL_S: Final = 10
"""Between two looks at a request that is not decided."""
UNDECIDED_S: Final = 600.0
"""A request that nobody decides for so long is left, and another one made."""
BUNDLE_LAG_S: Final = 180.0
"""The kubelet brings a new trust bundle within a minute or two; a certificate may be here before."""
MOST_PAUSE_S: Final = 300
"""Between two attempts."""

_log = logging.getLogger(__name__)


class CertificateSource:
    """Keeps the identity's folder whole and current, for as long as it runs."""

    def __init__(self, api: ClusterApi, settings: SidecarSettings) -> None:
        self._api = api
        self._settings = settings
        self._group = GroupKey(settings.group_namespace, settings.group)
        self._folder = settings.identity_dir
        role = "trainer" if settings.role == "trainer" else "rollout"
        self._identity = MemberIdentity(settings.group_uid, role, settings.region, settings.member)  # type: ignore[arg-type]
        self._failures = 0
        self._due: tuple[str, datetime.datetime] | None = None
        """For which certificate, by its fingerprint, the next one is due when."""
        self.trouble: tuple[str, str] | None = None
        """Why there is no certificate, or no newer one: one word and a sentence."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            pause_s = LOOK_S
            try:
                await self._turn()
            except (NoCertificateError, IdentityError, MembershipError, OSError) as error:
                self._failed(getattr(error, "reason", "NoCertificate"), str(error))
                pause_s = next_pause_s(MOST_PAUSE_S, self._failures, random.random())  # noqa: S311 jitter
            await asyncio.sleep(pause_s)

    async def _turn(self) -> None:
        """Looks once; asks for a certificate where one is due."""
        private_pem = await asyncio.to_thread(_key_in, self._folder)
        bundle_pem = await asyncio.to_thread(self._bundle)
        held = requests.judge(bundle_pem, _read(self._folder / CERTIFICATE_FILE), private_pem, self._identity, _now())
        if held.files is not None:
            await asyncio.to_thread(_put, self._folder, held.files)
            if _now() < self._due_at(held.files):
                self._well()
                return
            _log.info("the certificate ends at %s and is renewed", f"{held.files.certificate.not_after:%H:%M:%S} UTC")
        else:
            _log.info("a certificate is asked for: %s", held.why)
        certificate_pem = await self._ask(private_pem)
        files = await self._checked(certificate_pem, private_pem)
        await asyncio.to_thread(_put, self._folder, files)
        _log.info("the certificate of %s is here, until %s", self._identity, f"{files.certificate.not_after:%F %T} UTC")
        self._well()

    async def _ask(self, private_pem: bytes) -> bytes:
        """Makes a request and waits for what becomes of it."""
        settings = self._settings
        name = certificate_request_name(self._group, settings.member, settings.pod_uid, secrets.token_hex(8))
        document = requests.request_document(
            name, group_labels(self._group, settings.group_uid), make_request(self._identity, read_key(private_pem))
        )
        status, answer = await self._api.request("POST", requests.PATH, document)
        if status != 201:
            raise refused("the certificate request", status, answer)
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + UNDECIDED_S
        looks = 0
        while loop.time() < give_up_s:
            certificate_pem = requests.certificate_in(answer)
            if certificate_pem is not None:
                return certificate_pem
            looks += 1
            if looks == 4:
                self.trouble = self.trouble or ("CertificatePending", f"nobody has decided the request {name} yet")
            await asyncio.sleep(next_pause_s(MOST_POLL_S, looks, random.random()) / 2)  # noqa: S311 jitter
            answer = await self._look(name, answer)
        raise NoCertificateError("CertificatePending", f"nobody decided the request {name} for {UNDECIDED_S:.0f} s")

    async def _look(self, name: str, last: dict[str, object]) -> dict[str, object]:
        """The request as it is now; an API server that is away may be back the next time."""
        try:
            status, answer = await self._api.request("GET", f"{requests.PATH}/{name}")
        except MembershipError as error:
            self.trouble = ("NoCertificate", str(error))
            return last
        if status == 404:
            raise NoCertificateError("CertificatePending", f"the request {name} was deleted before it was decided")
        if status != 200:
            self.trouble = ("NoCertificate", str(refused("the certificate request", status, answer)))
            return last
        return answer

    async def _checked(self, certificate_pem: bytes, private_pem: bytes) -> IdentityFiles:
        """The new files; waits for a trust bundle that the kubelet has not brought yet."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + BUNDLE_LAG_S
        while True:
            bundle_pem = await asyncio.to_thread(self._bundle)
            held = requests.judge(bundle_pem, certificate_pem, private_pem, self._identity, _now())
            if held.files is not None:
                return held.files
            if not held.issuer_left:
                raise NoCertificateError(requests.UNUSABLE, f"the certificate that came cannot be used: {held.why}")
            if loop.time() >= give_up_s:
                raise NoCertificateError(
                    requests.UNUSABLE,
                    f"the certificate was signed by a CA that {self._settings.trust_dir} does not hold",
                )
            await asyncio.sleep(LOOK_S)

    def _bundle(self) -> bytes:
        path = self._settings.trust_dir / CA_FILE
        bundle_pem = _read(path)
        if bundle_pem is None:
            raise NoCertificateError("NoTrustBundle", f"{path} is not there yet: the operator brings the trust bundle")
        read_pem(bundle_pem, str(path), MAX_AUTHORITIES)
        return bundle_pem

    def _due_at(self, files: IdentityFiles) -> datetime.datetime:
        fingerprint = files.certificate.fingerprint
        if self._due is None or self._due[0] != fingerprint:
            self._due = fingerprint, requests.due_at(files, random.random())  # noqa: S311 jitter
        return self._due[1]

    def _well(self) -> None:
        self._failures, self.trouble = 0, None

    def _failed(self, reason: str, sentence: str) -> None:
        if self.trouble != (reason, sentence):
            _log.warning("no new certificate: %s", sentence)
        self._failures += 1
        self.trouble = reason, sentence


def _key_in(folder: Path) -> bytes:
    """The member's key; made where there is none, or where what is there is none."""
    path = folder / KEY_FILE
    found = _read(path)
    if found is not None:
        try:
            read_key(found)
        except IdentityError as error:
            _log.warning("%s is replaced by a new key: %s", path, error)
        else:
            return found
    folder.mkdir(parents=True, exist_ok=True)
    made = key_pem(make_key())
    write_file(path, made, mode=KEY_MODE, replace=True)
    return made


def _put(folder: Path, files: IdentityFiles) -> None:
    """Certificate and bundle in an order in which every moment's set is whole; nothing is written that is there."""
    new = {CA_FILE: files.ca_pem, CERTIFICATE_FILE: files.certificate_pem}
    old = {name: _read(folder / name) for name in new}
    order = [CA_FILE, CERTIFICATE_FILE]
    if old[CA_FILE] is not None and _is_whole(old[CA_FILE] or b"", files):
        order.reverse()  # under the old bundle the new certificate is good, but not always the other way round
    for name in order:
        if old[name] != new[name]:
            write_file(folder / name, new[name], mode=PUBLIC_MODE, replace=True)


def _is_whole(bundle_pem: bytes, files: IdentityFiles) -> bool:
    try:
        parse_files(bundle_pem, files.certificate_pem, key_pem(files.key))
    except IdentityError:
        return False
    return True


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BUNDLE_BYTES + 1)  # one more than allowed: the parser then says so
    except FileNotFoundError:
        return None


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
