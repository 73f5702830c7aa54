"""Only a trainer of the group can sign, and only while its certificate lasts."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest
from cryptography import x509

import sync_runtime
from sync_runtime.identity import signing
from sync_runtime.identity.ca import make_ca
from sync_runtime.identity.errors import (
    BadChainError,
    BadSignatureError,
    ExpiredError,
    NotYetValidError,
    UnknownCaError,
    WrongGroupError,
    WrongRoleError,
)
from sync_runtime.identity.files import read_folder
from sync_runtime.identity.keys import make_key
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.identity.signing import Signer, TrustedSigners
from tests.support.identities import DAY, GROUP_UID, Group, now, odd_certificate

DOCUMENT = b'{"format":"a manifest"}'


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path)


@pytest.fixture
def signer(group: Group) -> Signer:
    return Signer.of(read_folder(group.trainer()))


@pytest.fixture
def trusted(group: Group) -> TrustedSigners:
    return TrustedSigners(group.authority.certificate_pem, GROUP_UID)


def test_what_a_trainer_signed_is_accepted(signer: Signer, trusted: TrustedSigners) -> None:
    name = trusted.add(signer.chain_pem)
    signature = signer.sign(DOCUMENT)
    assert len(signature) == 64
    assert trusted.verify(DOCUMENT, signature, now()) == name
    assert trusted.add(signer.chain_pem) == name


def test_the_prefix_is_the_one_of_the_format() -> None:
    page = (Path(sync_runtime.__file__).parent / "FORMAT.md").read_text(encoding="utf-8")
    stated = re.search(r"signature is over the bytes `([^`]+)`, NUL, JSON", page)
    assert stated is not None
    assert stated[1].encode() + b"\0" == signing.SIGNED_PREFIX


def test_the_prefix_of_a_term_is_the_one_of_the_protocol() -> None:
    page = (Path(sync_runtime.__file__).parent / "PROTOCOL.md").read_text(encoding="utf-8")
    stated = re.search(r"Ed25519 over the bytes `([^`]+)`, NUL, group uid", page)
    assert stated is not None
    assert stated[1].encode() + b"\0" == signing.TERM_PREFIX


def test_every_changed_byte_is_noticed(signer: Signer, trusted: TrustedSigners) -> None:
    trusted.add(signer.chain_pem)
    signature = signer.sign(DOCUMENT)
    for at in range(len(DOCUMENT)):
        with pytest.raises(BadSignatureError):
            trusted.verify(DOCUMENT[:at] + bytes([DOCUMENT[at] ^ 1]) + DOCUMENT[at + 1 :], signature, now())
    for at in range(64):
        with pytest.raises(BadSignatureError):
            trusted.verify(DOCUMENT, signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :], now())
    for wrong in (b"", signature[:-1], signature + b"\0"):
        with pytest.raises(BadSignatureError):
            trusted.verify(DOCUMENT, wrong, now())


def test_a_signature_without_the_prefix_is_none(group: Group, trusted: TrustedSigners) -> None:
    files = read_folder(group.trainer())
    trusted.add(files.certificate_pem)
    with pytest.raises(BadSignatureError):
        trusted.verify(DOCUMENT, files.key.sign(DOCUMENT), now())


def test_an_unknown_trainer_must_be_introduced_first(signer: Signer, trusted: TrustedSigners) -> None:
    with pytest.raises(BadSignatureError):
        trusted.verify(DOCUMENT, signer.sign(DOCUMENT), now())


def test_a_rollout_is_no_signer_on_either_side(group: Group, trusted: TrustedSigners) -> None:
    files = read_folder(group.member("worker-0"))
    with pytest.raises(WrongRoleError):
        Signer.of(files)
    with pytest.raises(WrongRoleError):
        trusted.add(files.certificate_pem)
    with pytest.raises(BadSignatureError):
        trusted.verify(DOCUMENT, Signer(files.key, files.certificate_pem).sign(DOCUMENT), now())


def test_a_trainer_of_another_group_or_ca_is_refused(tmp_path: Path, group: Group, trusted: TrustedSigners) -> None:
    namesake = Group(tmp_path / "namesake")
    with pytest.raises(UnknownCaError):
        trusted.add(read_folder(namesake.trainer()).certificate_pem)
    foreign = TrustedSigners(group.authority.certificate_pem, "another-group")
    with pytest.raises(WrongGroupError):
        foreign.add(read_folder(group.trainer()).certificate_pem)


def test_chains_that_are_too_long_or_no_chains_are_refused(signer: Signer, trusted: TrustedSigners) -> None:
    for chain in (signer.chain_pem * 2, signer.chain_pem * 100, b"", b"x" * 100_000):
        with pytest.raises(BadChainError):
            trusted.add(chain)


@pytest.mark.parametrize(("late_minutes", "accepted"), [(9, True), (11, False)])
def test_an_ended_certificate_counts_ten_minutes_longer(
    group: Group, trusted: TrustedSigners, late_minutes: int, accepted: bool
) -> None:
    signer = Signer.of(read_folder(group.trainer()))
    trusted.add(signer.chain_pem)
    moment = now() + DAY + datetime.timedelta(minutes=late_minutes)
    if accepted:
        trusted.verify(DOCUMENT, signer.sign(DOCUMENT), moment)
    else:
        with pytest.raises(ExpiredError):
            trusted.verify(DOCUMENT, signer.sign(DOCUMENT), moment)


def test_a_clock_an_hour_wrong_does_not_matter_a_day_does(signer: Signer, trusted: TrustedSigners) -> None:
    trusted.add(signer.chain_pem)
    for hours in (-1, 1):
        trusted.verify(DOCUMENT, signer.sign(DOCUMENT), now() + datetime.timedelta(hours=hours))
    with pytest.raises(NotYetValidError):
        trusted.verify(DOCUMENT, signer.sign(DOCUMENT), now() - DAY)


def test_a_renewed_certificate_carries_the_old_signatures_of_its_key_along(
    group: Group, trusted: TrustedSigners
) -> None:
    key = make_key()
    old = Signer.of(read_folder(group.trainer(key=key, at=now() - 5 * DAY)))
    trusted.add(old.chain_pem)
    with pytest.raises(ExpiredError):
        trusted.verify(DOCUMENT, old.sign(DOCUMENT), now())
    renewed = trusted.add(read_folder(group.trainer(key=key)).certificate_pem)
    assert trusted.verify(DOCUMENT, old.sign(DOCUMENT), now()) == renewed


def test_a_withdrawn_key_is_refused_under_every_certificate(group: Group, trusted: TrustedSigners) -> None:
    key = make_key()
    first = Signer.of(read_folder(group.trainer(key=key)))
    second = Signer.of(read_folder(group.trainer("trainer-1")))
    name = trusted.add(first.chain_pem)
    trusted.add(second.chain_pem)
    trusted.withdraw(name)
    trusted.withdraw("unknown")
    trusted.add(read_folder(group.trainer(key=key)).certificate_pem)
    with pytest.raises(BadSignatureError, match="withdrawn"):
        trusted.verify(DOCUMENT, first.sign(DOCUMENT), now())
    trusted.verify(DOCUMENT, second.sign(DOCUMENT), now())


def test_a_replaced_ca_takes_its_signers_along(tmp_path: Path, group: Group, signer: Signer) -> None:
    successor = Group(tmp_path / "successor")
    both = group.authority.certificate_pem + successor.authority.certificate_pem
    trusted = TrustedSigners(both, GROUP_UID)
    heir = Signer.of(read_folder(successor.trainer()))
    trusted.add(signer.chain_pem)
    trusted.add(heir.chain_pem)
    trusted.replace_ca(successor.authority.certificate_pem)
    trusted.verify(DOCUMENT, heir.sign(DOCUMENT), now())
    with pytest.raises(BadSignatureError):
        trusted.verify(DOCUMENT, signer.sign(DOCUMENT), now())


def test_an_ended_ca_stands_behind_nothing() -> None:
    authority = make_ca(GROUP_UID, now=now() - 2 * DAY, lifetime=DAY)
    name = x509.UniformResourceIdentifier(MemberIdentity(GROUP_UID, "trainer", "us-east", "trainer-0").uri())
    key = make_key()
    signer = Signer(key, odd_certificate(authority, key, names=[name]))  # our own code never signs past the CA's end
    trusted = TrustedSigners(authority.certificate_pem, GROUP_UID)
    trusted.add(signer.chain_pem)
    with pytest.raises(UnknownCaError, match="has ended"):
        trusted.verify(DOCUMENT, signer.sign(DOCUMENT), now())


def test_the_number_of_signers_is_bounded(group: Group, trusted: TrustedSigners) -> None:
    first = Signer.of(read_folder(group.trainer(lifetime=DAY / 2)))
    trusted.add(first.chain_pem)
    for _ in range(signing.MAX_SIGNERS):
        trusted.add(read_folder(group.trainer()).certificate_pem)
    with pytest.raises(BadSignatureError):
        trusted.verify(DOCUMENT, first.sign(DOCUMENT), now())
