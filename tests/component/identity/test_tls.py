"""Real handshakes between members: who gets in, and for which reason others do not."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import struct
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID as Purpose

from sync_runtime.identity.ca import Authority, make_ca
from sync_runtime.identity.files import read_folder
from sync_runtime.identity.keys import key_pem, make_key
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.identity.tls import ALPN, client_context, server_context
from sync_runtime.identity.watch import CertificateWatch
from tests.component.identity.meeting import Verdict, meet, visit
from tests.support.identities import DAY, GROUP_UID, Group, elliptic_certificate, odd_certificate

pytestmark = pytest.mark.timeout(10)
HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path)


@pytest.fixture
def server(group: Group) -> ssl.SSLContext:
    return server_context(group.trainer())


def reason(verdict: Verdict) -> str:
    return "accepted" if isinstance(verdict, MemberIdentity) else verdict.reason


def bare_client(group: Group, folder: Path | None) -> ssl.SSLContext:
    """What somebody else's program would use: no rule of ours on its side."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=group.authority.certificate_pem.decode())
    context.set_alpn_protocols([ALPN])
    if folder is not None:
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


def test_members_of_one_group_know_each_other(group: Group, server: ssl.SSLContext) -> None:
    meeting = meet(server, client_context(group.member("worker-0")))
    assert meeting.listener == group.identity("worker-0")
    assert meeting.dialler == group.identity("trainer-0", "trainer", "us-east")


def test_the_connection_is_tls_13_without_resumption(group: Group, server: ssl.SSLContext) -> None:
    assert server.minimum_version == server.maximum_version == ssl.TLSVersion.TLSv1_3
    with socket.create_server(("127.0.0.1", 0)) as listening:
        raw = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
    far = server.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
    near = client_context(group.member("worker-0")).wrap_socket(raw, do_handshake_on_connect=False)
    with near, far:
        near.setblocking(False)
        far.setblocking(False)
        left = [near, far]
        while left:  # until the test's own time-out: when bytes come across is up to the kernel
            for end in list(left):
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
                    left.remove(end)
        far.setblocking(True)
        far.sendall(b"x")
        near.setblocking(True)
        assert near.recv(1) == b"x"
        assert near.version() == "TLSv1.3"
        assert near.session is not None
        assert not near.session.has_ticket


def test_another_groups_member_is_refused_by_both_ends(tmp_path: Path, group: Group, server: ssl.SSLContext) -> None:
    stranger = Group(tmp_path / "other", "other-group")
    meeting = meet(server, client_context(stranger.member("worker-0")))
    assert reason(meeting.dialler) == "UnknownCa"
    assert visit_as(stranger, server, trusts=group) == "UnknownCa"


def visit_as(group: Group, server: ssl.SSLContext, *, trusts: Group) -> str:
    context = bare_client(trusts, group.member("worker-0"))
    meeting = meet(server, context)
    assert reason(meeting.dialler) == "RefusedByPeer"
    return reason(meeting.listener)


def test_a_namesake_ca_is_an_unknown_ca(tmp_path: Path, group: Group, server: ssl.SSLContext) -> None:
    assert visit_as(Group(tmp_path / "namesake"), server, trusts=group) == "UnknownCa"


def test_nobody_gets_in_without_a_certificate(group: Group, server: ssl.SSLContext) -> None:
    meeting = meet(server, bare_client(group, None))
    assert reason(meeting.listener) == "NoIdentity"
    assert reason(meeting.dialler) == "RefusedByPeer"


@pytest.mark.parametrize(
    ("made", "lifetime", "expected"),
    [(-3 * DAY, DAY, "Expired"), (3 * DAY, DAY, "NotYetValid"), (-HOUR, DAY, "accepted"), (HOUR, DAY, "accepted")],
)
def test_times_are_checked_on_both_ends_and_an_hour_of_wrong_clock_is_forgiven(
    group: Group,
    server: ssl.SSLContext,
    made: datetime.timedelta,
    lifetime: datetime.timedelta,
    expected: str,
) -> None:
    folder = group.member("worker-0", at=datetime.datetime.now(datetime.UTC) + made, lifetime=lifetime)
    assert reason(meet(server, bare_client(group, folder)).listener) == expected
    other_way = meet(server_context(folder), client_context(group.trainer()))
    assert reason(other_way.dialler) == expected


def odd(group: Group, name: str, certificate: bytes, private_pem: bytes) -> ssl.SSLContext:
    return bare_client(group, group.write(name, certificate, private_pem))


URI = "spiffe://syncgroup.dev/group/{}/role/rollout/region/eu-west/member/{}"


@pytest.mark.parametrize(
    ("oddity", "expected"),
    [
        pytest.param({"names": []}, "BadName", id="nameless"),
        pytest.param({"names": [x509.DNSName("trainer-0.example")]}, "BadName", id="a host name"),
        pytest.param({"names": [URI.format(GROUP_UID, "a"), URI.format(GROUP_UID, "b")]}, "BadName", id="two names"),
        pytest.param({"names": [URI.format(GROUP_UID, "*")]}, "BadName", id="wildcard"),
        pytest.param({"purposes": [Purpose.SERVER_AUTH]}, "WrongUsage", id="for servers"),
        pytest.param({"purposes": [Purpose.CLIENT_AUTH]}, "WrongUsage", id="for clients only"),
        pytest.param({"purposes": [Purpose.CODE_SIGNING]}, "WrongUsage", id="for code"),
        pytest.param({"is_ca": True}, "WrongUsage", id="a CA"),
        pytest.param({"begins": -2 * DAY, "ends": -DAY}, "Expired", id="expired"),
        pytest.param({"begins": DAY, "ends": 2 * DAY}, "NotYetValid", id="from the future"),
    ],
)
def test_hostile_certificates_are_refused_each_for_its_reason(
    group: Group, server: ssl.SSLContext, oddity: dict[str, object], expected: str
) -> None:
    if "names" in oddity:
        names = oddity["names"]
        assert isinstance(names, list)
        oddity = {"names": [x509.UniformResourceIdentifier(name) if isinstance(name, str) else name for name in names]}
    key = make_key()
    pem = odd_certificate(group.authority, key, **oddity)  # type: ignore[arg-type]
    assert reason(meet(server, odd(group, "odd", pem, key_pem(key))).listener) == expected


def test_a_key_on_another_curve_is_refused(group: Group, server: ssl.SSLContext) -> None:
    pem, key = elliptic_certificate(group.authority)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    assert reason(meet(server, odd(group, "curve", pem, private)).listener) == "WrongKey"


def test_a_certificate_signed_by_a_member_is_refused(group: Group, server: ssl.SSLContext) -> None:
    member = read_folder(group.member("worker-0"))
    key = make_key()
    forged = odd_certificate(group.authority, key, signer=member.key)
    chain = forged + member.certificate_pem
    assert reason(meet(server, odd(group, "forged", chain, key_pem(key))).listener) == "UnknownCa"


def test_a_ca_below_the_groups_ca_is_refused(group: Group, server: ssl.SSLContext) -> None:
    middle_key, key = make_key(), make_key()
    middle_pem = odd_certificate(group.authority, middle_key, is_ca=True)
    middle = Authority(x509.load_pem_x509_certificate(middle_pem), middle_key)
    chain = odd_certificate(middle, key) + middle_pem
    assert reason(meet(server, odd(group, "chained", chain, key_pem(key))).listener) == "WrongUsage"


def test_a_huge_chain_is_refused_before_it_costs_anything(group: Group, server: ssl.SSLContext) -> None:
    member = read_folder(group.member("worker-0"))
    blob = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"x" * 40_000)
    filler = b"".join(odd_certificate(group.authority, make_key(), further=[blob]) for _ in range(4))
    context = odd(group, "huge", member.certificate_pem + filler, key_pem(member.key))
    assert reason(meet(server, context).listener) == "BadChain"


def test_tls_12_is_refused(group: Group, server: ssl.SSLContext) -> None:
    context = bare_client(group, group.member("worker-0"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    meeting = meet(server, context)
    assert reason(meeting.listener) == "OldTls"
    assert reason(meeting.dialler) == "OldTls"
    old_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trainer = group.trainer()
    old_server.load_cert_chain(trainer / "tls.crt", trainer / "tls.key")
    old_server.maximum_version = ssl.TLSVersion.TLSv1_2
    assert reason(meet(old_server, client_context(group.member("worker-0"))).dialler) == "OldTls"


def test_another_protocol_inside_tls_is_refused(group: Group, server: ssl.SSLContext) -> None:
    context = bare_client(group, group.member("worker-0"))
    context.set_alpn_protocols(["h2"])
    assert reason(meet(server, context).listener) == "WrongProtocol"


@pytest.mark.parametrize(
    "greeting",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="http"),
        pytest.param(struct.pack("<BBHI", 1, 0, 0, 64) + b"{" + b" " * 63, id="our frames without TLS"),
        pytest.param(b"\0" * 64, id="zeros"),
        pytest.param(b"SSH-2.0-OpenSSH_9.9\r\n", id="ssh"),
    ],
)
def test_plain_tcp_is_refused(server: ssl.SSLContext, greeting: bytes) -> None:
    assert reason(visit(server, lambda raw: raw.sendall(greeting))) == "NotTls"


def test_a_visitor_who_leaves_is_a_failed_handshake_and_no_matter_of_identity(server: ssl.SSLContext) -> None:
    verdict = visit(server, lambda raw: None)
    assert not isinstance(verdict, MemberIdentity)
    assert (verdict.reason, verdict.retry_helps) == ("HandshakeFailed", True)


def test_new_handshakes_use_the_renewed_certificate_and_old_connections_stay(group: Group) -> None:
    folder = group.trainer()
    watch = CertificateWatch(folder)
    client = client_context(group.member("worker-0"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        first = _pair(listening, watch, client)
        group.trainer(lifetime=2 * DAY)
        second = _pair(listening, watch, client)
    shown = [near.getpeercert(binary_form=True) for near, _ in (first, second)]
    assert shown[0] != shown[1]
    for near, far in (first, second):
        near.sendall(b"still here")
        assert far.recv(10) == b"still here"
        near.close()
        far.close()


def _pair(
    listening: socket.socket, watch: CertificateWatch, client: ssl.SSLContext
) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    far: list[ssl.SSLSocket] = []

    def accept() -> None:
        raw, _ = listening.accept()
        far.append(watch.server_context().wrap_socket(raw, server_side=True))

    thread = threading.Thread(target=accept)
    thread.start()
    near = client.wrap_socket(socket.create_connection(listening.getsockname(), timeout=5))
    thread.join()
    return near, far[0]


def test_members_meet_while_the_ca_is_replaced(tmp_path: Path, group: Group) -> None:
    heir = Group(tmp_path / "heir", authority=make_ca(GROUP_UID, now=datetime.datetime.now(datetime.UTC), lifetime=DAY))
    both = group.authority.certificate_pem + heir.authority.certificate_pem
    trainer, worker = group.trainer(), heir.member("worker-0")
    for folder in (trainer, worker):
        (folder / "ca.crt").write_bytes(both)
    meeting = meet(server_context(trainer), client_context(worker))
    assert (reason(meeting.listener), reason(meeting.dialler)) == ("accepted", "accepted")
