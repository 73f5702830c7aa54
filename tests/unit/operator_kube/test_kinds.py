"""Paths of the kinds that the operator touches."""

from __future__ import annotations

import pytest

from syncgroup_operator.errors import RefusedError
from syncgroup_operator.kube import kinds


def test_paths_of_core_and_grouped_kinds() -> None:
    assert kinds.POD.path("ns", "a") == "/api/v1/namespaces/ns/pods/a"
    assert kinds.POD.path() == "/api/v1/pods"
    assert kinds.LEASE.path("ns") == "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    assert kinds.NODE.path("", "n") == "/api/v1/nodes/n"
    approval = kinds.CERTIFICATE_REQUEST.path("", "r", "approval")
    assert approval == "/apis/certificates.k8s.io/v1/certificatesigningrequests/r/approval"


def test_a_name_cannot_lead_to_another_object() -> None:
    assert kinds.POD.path("ns", "a/../../secrets/b") == "/api/v1/namespaces/ns/pods/a%2F..%2F..%2Fsecrets%2Fb"
    for name in (".", ".."):
        with pytest.raises(RefusedError):
            kinds.POD.path("ns", name)


def test_the_scope_must_fit() -> None:
    with pytest.raises(RefusedError, match="cluster-scoped"):
        kinds.NODE.path("ns", "n")
    with pytest.raises(RefusedError, match="lives in a namespace"):
        kinds.POD.path("", "a")


def test_a_document_finds_its_own_path() -> None:
    document = {
        "apiVersion": "syncgroup.dev/v1alpha1",
        "kind": "SyncGroup",
        "metadata": {"name": "g", "namespace": "n"},
    }
    assert kinds.path_of(document, "status") == "/apis/syncgroup.dev/v1alpha1/namespaces/n/syncgroups/g/status"
    with pytest.raises(RefusedError, match=r"metadata\.name"):
        kinds.path_of(document | {"metadata": {}})
    for wrong in ({"kind": "Deployment", "apiVersion": "apps/v1"}, {}, {"kind": ["Pod"], "apiVersion": "v1"}):
        with pytest.raises(RefusedError, match="table of kinds"):
            kinds.kind_of(wrong)


def test_kind_names_are_unique() -> None:
    assert len(kinds.BY_NAME) == len(kinds.KINDS)
