"""A member's certificate: asked for, checked, put in place so that every moment's files fit together, and replaced."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from sync_runtime.identity.errors import IdentityFilesError
from sync_runtime.identity.files import IdentityFiles, read_folder, write_file
from sync_runtime.pod import certificates
from sync_runtime.pod.certificates import CertificateSource
from tests.component.pod.api_server import ApiServer, issued, settings_in, signs, until
from tests.support.identities import Group

pytestmark = pytest.mark.timeout(30)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "LOOK_S", 0.05)


class Member:
    """A member's folders, its group, and the API server that it asks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.group = Group(folder / "ca")
        self.next = Group(folder / "next")
        self.server = ApiServer()
        (folder / "trust").mkdir()

    def trust(self, *groups: Group) -> None:
        """What the kubelet mounts."""
        text = b"".join(group.authority.certificate_pem for group in groups)
        write_file(self.folder / "trust/ca.crt", text, mode=0o644, replace=True)

    def files(self) -> IdentityFiles | None:
        """The identity as the sidecar reads it."""
        try:
            return read_folder(self.folder / "identity")
        except IdentityFilesError:
            return None

    def issuer(self) -> Group | None:
        """Whose certificate is in place."""
        files = self.files()
        for group in (self.group, self.next):
            subject = group.authority.key.public_key()
            if files is not None and _signed_by(files, subject):
                return group
        return None

    @contextlib.asynccontextmanager
    async def source(self) -> AsyncIterator[CertificateSource]:
        async with self.server.running(self.folder) as api:
            source = CertificateSource(api, settings_in(self.folder))
            task = asyncio.create_task(source.run())
            try:
                yield source
                assert not task.done(), "the source goes on whatever happens"
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def run(self, scenario: Callable[[CertificateSource], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with self.source() as source:
                await scenario(source)

        asyncio.run(whole())


def _signed_by(files: IdentityFiles, key: Any) -> bool:
    leaf = x509.load_pem_x509_certificate(files.certificate_pem)
    try:
        key.verify(leaf.signature, leaf.tbs_certificate_bytes)
    except InvalidSignature:
        return False
    return True


@pytest.fixture
def member(tmp_path: Path) -> Member:
    made = Member(tmp_path)
    made.trust(made.group)
    made.server.answer = signs(made.group)
    return made


def test_a_member_gets_a_certificate_for_a_key_that_nobody_else_can_read(member: Member) -> None:
    async def scenario(source: CertificateSource) -> None:
        await until(member.files)
        assert source.trouble is None
        await asyncio.sleep(0.3)
        assert len(member.server.requests) == 1, "one that is good is not asked for again"

    member.run(scenario)
    files = member.files()
    assert files is not None
    assert files.identity.member == "worker-0"
    assert (member.folder / "identity/tls.key").stat().st_mode & 0o777 == 0o600


def test_a_restarted_sidecar_keeps_key_and_certificate(member: Member) -> None:
    async def scenario(source: CertificateSource) -> None:
        await until(lambda: member.files() and source.trouble is None)

    member.run(scenario)
    before = member.files()
    member.run(scenario)
    after = member.files()
    assert before is not None
    assert after is not None
    assert after.certificate_pem == before.certificate_pem
    assert len(member.server.requests) == 1


def test_nothing_is_taken_that_is_not_ours(member: Member) -> None:
    """Another member's certificate, another key's: told, and asked again under another name."""
    good, other = member.server.answer, member.group.member("worker-1")
    strange = member.group.member("worker-0")  # the right name, but another key
    answers = [
        issued((other / "tls.crt").read_bytes()),
        issued((strange / "tls.crt").read_bytes()),
    ]

    def answer(document: dict[str, Any]) -> dict[str, Any] | None:
        number = list(member.server.requests).index(document["metadata"]["name"])
        return answers[number] if number < len(answers) else good(document)

    member.server.answer = answer

    async def scenario(source: CertificateSource) -> None:
        await until(lambda: source.trouble is not None)
        assert source.trouble is not None
        assert source.trouble[0] == "CertificateUnusable"
        assert member.files() is None
        await until(member.files, 20)
        await until(lambda: source.trouble is None)

    member.run(scenario)
    assert len(member.server.requests) == 3


def test_a_request_that_vanished_is_made_again(member: Member) -> None:
    good = member.server.answer
    member.server.answer = lambda document: None if len(member.server.requests) == 1 else good(document)

    async def scenario(source: CertificateSource) -> None:
        await until(lambda: source.trouble is not None)
        assert "deleted" in str(source.trouble)
        await until(member.files)

    member.run(scenario)


def test_an_api_server_that_refuses_is_told_and_asked_again(member: Member) -> None:
    async def scenario(source: CertificateSource) -> None:
        member.server.request_status = 403
        await until(lambda: source.trouble is not None)
        assert "not now" in str(source.trouble)
        member.server.request_status = 201
        await until(member.files)

    member.run(scenario)


def test_a_trust_bundle_that_comes_late_is_waited_for(member: Member) -> None:
    (member.folder / "trust/ca.crt").unlink()

    async def scenario(source: CertificateSource) -> None:
        await until(lambda: source.trouble is not None)
        assert source.trouble is not None
        assert source.trouble[0] == "NoTrustBundle"
        assert not member.server.requests, "what could not be checked is not asked for"
        member.trust(member.next)  # not the one that signs: the kubelet is behind
        await until(lambda: member.server.requests)
        await asyncio.sleep(0.5)
        assert member.files() is None
        member.trust(member.next, member.group)
        await until(member.files)
        assert len(member.server.requests) == 1, "the certificate that came first was the right one"

    member.run(scenario)


def test_a_replaced_ca_never_leaves_files_that_do_not_fit_together(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[str] = []

    def watched(path: Path, *args: Any, **options: Any) -> None:
        """What a sidecar would read between two files."""
        write_file(path, *args, **options)
        if member.files() is None:
            broken.append(path.name)

    async def scenario(source: CertificateSource) -> None:
        await until(member.files)
        monkeypatch.setattr(certificates, "write_file", watched)
        member.trust(member.group, member.next)
        await until(lambda: len((member.folder / "identity/ca.crt").read_bytes()) > 1000)
        assert member.issuer() is member.group, "a bundle that grows is no reason to ask"
        member.server.answer = lambda _: {}  # nobody decides for a while
        member.trust(member.next)
        await until(lambda: len(member.server.requests) == 2)
        await asyncio.sleep(0.5)
        assert member.issuer() is member.group, "the old one stays until the new one is here"
        member.server.answer = signs(member.next)
        await until(lambda: member.issuer() is member.next)
        await until(lambda: source.trouble is None)
        await until(lambda: (member.folder / "identity/ca.crt").read_bytes() == member.next.authority.certificate_pem)
        assert broken == []

    member.run(scenario)
