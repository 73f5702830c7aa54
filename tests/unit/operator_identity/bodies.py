"""A group with one rollout's pod, and the certificate request that this pod sends, as the API server stores it."""

from __future__ import annotations

import base64
import copy
import datetime
from typing import Any

from sync_runtime.contract.names import GroupKey, group_labels, member_name
from sync_runtime.identity.ca import make_request
from sync_runtime.identity.keys import make_key
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.pod.requests import request_document
from syncgroup_operator.identity.authority import AuthorityPolicy, GroupAuthority, make
from syncgroup_operator.planning.observation import Place, PodView, Slot

NOW = datetime.datetime(2027, 3, 1, 12, 0, 0, tzinfo=datetime.UTC)
KEY = GroupKey("team-a", "demo")
UID = "2b1f9c5e-0a53-4d7c-9a3b-6a0f5f8a1c11"
POLICY = AuthorityPolicy()
AUTHORITY: GroupAuthority = make(UID, now=NOW - datetime.timedelta(days=3), policy=POLICY)
SLOT = Slot("workers", 0)
MEMBER = member_name(KEY, *SLOT)
POD = PodView(
    name=MEMBER,
    namespace="remote-a",
    uid="0f3f7a52-1111-4d7c-9a3b-6a0f5f8a1c11",
    slot=SLOT,
    place=Place("eu", "eu-west"),
    phase="Running",
    ready=False,
    deleting=False,
    seen_s=1.0,
    service_account="runner",
)
IDENTITY = MemberIdentity(UID, "rollout", "eu-west", MEMBER)


def body(identity: MemberIdentity = IDENTITY, *, age_s: float = 1.0, pem: bytes | None = None) -> dict[str, Any]:
    """The request that the pod sends."""
    request = make_request(identity, make_key()) if pem is None else pem
    document = request_document("demo-csr-1", group_labels(KEY, UID), request)
    created = NOW - datetime.timedelta(seconds=age_s)
    document["metadata"] |= {"uid": "csr-uid", "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ")}
    document["spec"] |= {
        "username": "system:serviceaccount:remote-a:runner",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:remote-a", "system:authenticated"],
        "extra": {
            "authentication.kubernetes.io/pod-name": [POD.name],
            "authentication.kubernetes.io/pod-uid": [POD.uid],
        },
    }
    document["status"] = {}
    return document


def changed(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with one field set, or taken away with None."""
    document = copy.deepcopy(document)
    *folders, last = path.split("/")
    place = document
    for folder in folders:
        place = place[folder]
    if value is None:
        place.pop(last, None)
    else:
        place[last] = value
    return document


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
