"""Manifests of the demo: per region one Service and one pod with a native sidecar. Pure."""

from __future__ import annotations

from typing import Any

from tools.demo import probe
from tools.devcluster import hostpython

NAME = "demo-member"


def service() -> dict[str, Any]:
    """The region's address for the others: a load balancer, as a trainer's endpoint would have."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME},
        "spec": {
            "type": "LoadBalancer",
            "publishNotReadyAddresses": True,  # a member is ready once it has measured the others, who wait for it
            "selector": {"app": NAME},
            "ports": [{"port": probe.PORT, "targetPort": probe.PORT}],
        },
    }


def pod(peers: dict[str, str]) -> dict[str, Any]:
    """A member: the sidecar answers, the main container measures the links to `peers` (region -> host:port)."""
    shared = {"name": "shared", "mountPath": "/shared"}
    sidecar = hostpython.container(
        "sync-runtime",
        ["-m", "tools.demo.probe", "serve"],
        restartPolicy="Always",  # what makes an init container a sidecar
        startupProbe={"exec": {"command": ["/bin/test", "-f", str(probe.HEALTH)]}, "periodSeconds": 1},
        volumeMounts=[shared],
    )
    main = hostpython.container(
        "member",
        ["-m", "tools.demo.probe", "measure"],
        environment={"PEERS": ",".join(f"{region}={address}" for region, address in peers.items())},
        readinessProbe={"exec": {"command": ["/bin/test", "-f", str(probe.RESULT)]}, "periodSeconds": 1},
        volumeMounts=[shared],
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "labels": {"app": NAME}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "volumes": [*hostpython.volumes(), {"name": "shared", "emptyDir": {}}],
            "initContainers": [sidecar],
            "containers": [main],
        },
    }
