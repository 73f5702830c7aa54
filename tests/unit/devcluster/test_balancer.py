"""Addresses for Services of type LoadBalancer."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tools.devcluster import balancer
from tools.devcluster.balancer import Balancer, held, next_address
from tools.devcluster.config import Region


class _Api:
    """Remembers what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def request(self, _method: str, path: str, body: Any, *, content_type: str) -> tuple[int, dict[str, Any]]:
        assert content_type == "application/merge-patch+json"
        self.asked.append((path, body["status"]["loadBalancer"]["ingress"][0]["ip"]))
        return 200, {}


def _service(name: str, kind: str = "LoadBalancer", address: str | None = None) -> dict[str, Any]:
    ingress = [{"ip": address}] if address else None
    return {
        "metadata": {"uid": name, "name": name, "namespace": "n"},
        "spec": {"type": kind},
        "status": {"loadBalancer": {"ingress": ingress} if ingress else {}},
    }


def test_the_lowest_free_address_is_next() -> None:
    assert next_address("10.233.1.0/24", set()) == "10.233.1.1"
    assert next_address("10.233.1.0/24", {"10.233.1.1", "10.233.1.3"}) == "10.233.1.2"


def test_a_full_range_has_no_next() -> None:
    assert next_address("10.233.1.0/30", {"10.233.1.1", "10.233.1.2"}) is None


@pytest.mark.parametrize(
    ("status", "address"),
    [
        ({}, None),
        ({"loadBalancer": {}}, None),
        ({"loadBalancer": {"ingress": None}}, None),
        ({"loadBalancer": {"ingress": []}}, None),
        ({"loadBalancer": {"ingress": [{"hostname": "x"}]}}, None),
        ({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}, "10.0.0.1"),
    ],
)
def test_the_address_a_service_holds_is_read(status: dict[str, Any], address: str | None) -> None:
    assert held({"status": status}) == address
    assert held({}) is None


@pytest.fixture
def watched() -> tuple[Balancer, Any]:
    """A balancer without a thread, and the API it talks to."""
    return Balancer(Region("us-east", 1), Path("/nowhere")), _Api()


def test_each_service_gets_an_address_once_and_gives_it_back(watched: tuple[Balancer, Any]) -> None:
    balancing, api = watched
    balancing._seen(api, "ADDED", _service("old", address="10.233.1.1"))
    balancing._seen(api, "ADDED", _service("a"))
    balancing._seen(api, "MODIFIED", _service("a", address="10.233.1.2"))
    balancing._seen(api, "ADDED", _service("b"))
    balancing._seen(api, "DELETED", _service("old", address="10.233.1.1"))
    balancing._seen(api, "ADDED", _service("c"))
    assert api.asked == [
        ("/api/v1/namespaces/n/services/a/status", "10.233.1.2"),
        ("/api/v1/namespaces/n/services/b/status", "10.233.1.3"),
        ("/api/v1/namespaces/n/services/c/status", "10.233.1.1"),
    ]


def test_other_services_get_none_and_one_that_becomes_other_gives_its_back(watched: tuple[Balancer, Any]) -> None:
    balancing, api = watched
    balancing._seen(api, "ADDED", _service("plain", kind="ClusterIP"))
    balancing._seen(api, "ADDED", _service("a", address="10.233.1.1"))
    balancing._seen(api, "MODIFIED", _service("a", kind="NodePort"))
    balancing._seen(api, "ADDED", _service("b"))
    assert api.asked == [("/api/v1/namespaces/n/services/b/status", "10.233.1.1")]


def test_an_error_event_changes_nothing(watched: tuple[Balancer, Any]) -> None:
    balancing, api = watched
    balancing._seen(api, "ERROR", {"kind": "Status", "message": "too old"})
    balancing._seen(api, "", {})
    assert api.asked == []


def test_a_refused_watch_is_not_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = threading.Semaphore(0)
    monkeypatch.setattr(Balancer, "_watch", lambda _self: opened.release())
    balancing = Balancer(Region("us-east", 1), Path("/nowhere"))
    balancing.start()
    assert opened.acquire(timeout=1)
    assert not opened.acquire(timeout=0.2)
    balancing.stop()


def test_a_server_that_went_away_does_not_end_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = threading.Semaphore(0)

    def refuse(_self: Balancer) -> None:
        tried.release()
        raise ConnectionRefusedError

    monkeypatch.setattr(Balancer, "_watch", refuse)
    monkeypatch.setattr(balancer, "RETRY_EVERY_S", 0.01)
    balancing = Balancer(Region("us-east", 1), Path("/nowhere"))
    balancing.start()
    assert tried.acquire(timeout=1)
    assert tried.acquire(timeout=1)
    balancing.stop()
