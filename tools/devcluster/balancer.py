"""Gives Services of type LoadBalancer an address, as a cloud would. kube-proxy does the rest."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import threading
from pathlib import Path
from typing import Any

from tools.devcluster.api import MERGE, ApiClient
from tools.devcluster.config import Region

RETRY_EVERY_S = 0.5


def next_address(cidr: str, taken: set[str]) -> str | None:
    """The lowest address of the region's range that no Service holds."""
    return next((str(host) for host in ipaddress.ip_network(cidr).hosts() if str(host) not in taken), None)


def held(service: dict[str, Any]) -> str | None:
    """The address a Service already has."""
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
    address = ingress[0].get("ip")
    return str(address) if address else None


class Balancer:
    """Watches one region's Services in a thread of its own."""

    def __init__(self, region: Region, kubeconfig: Path) -> None:
        self._region = region
        self._kubeconfig = kubeconfig
        self._stopped = threading.Event()
        self._taken: dict[str, str] = {}

    def start(self) -> None:
        """Begin to watch; ends with the process."""
        threading.Thread(target=self._loop, name=f"balancer-{self._region.name}", daemon=True).start()

    def stop(self) -> None:
        """Do not open another watch."""
        self._stopped.set()

    def _loop(self) -> None:
        while not self._stopped.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                self._watch()
            self._stopped.wait(RETRY_EVERY_S)  # the API server restarts, was killed by a test, or refused the watch

    def _watch(self) -> None:
        api = ApiClient(self._kubeconfig)
        for event in api.watch("/api/v1/services?watch=1"):
            if self._stopped.is_set():
                return
            self._seen(api, event.get("type", ""), event.get("object", {}))

    def _seen(self, api: ApiClient, kind: str, service: dict[str, Any]) -> None:
        uid = service.get("metadata", {}).get("uid", "")
        wanted = kind in ("ADDED", "MODIFIED") and service.get("spec", {}).get("type") == "LoadBalancer"
        if not wanted:
            self._taken.pop(uid, None)
            return
        address = held(service)
        if address:
            self._taken[uid] = address
            return
        address = next_address(self._region.load_balancer_cidr, set(self._taken.values()))
        if address is None:
            return
        self._taken[uid] = address
        meta = service["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/services/{meta['name']}/status"
        body = {"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}}}
        api.request("PATCH", path, body, content_type=MERGE)
