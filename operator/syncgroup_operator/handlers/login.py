"""How kopf logs in: with the credentials of the engine's own client, read by the same library.

kopf asks again when a server refuses its token, but not when the server has a new authority. A pod's files are renewed
by its kubelet, so what was read from them is good for a while only.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Final

import kopf

from syncgroup_operator.kube.access import InCluster, KubeconfigFile

_TOKEN: Final = "BearerToken"  # noqa: S105 the client's name for it, no secret
GOOD_FOR: Final = datetime.timedelta(minutes=10)
"""A new authority is trusted after so long at the latest; tokens last for an hour."""


async def login(kubeconfig: Path | None) -> kopf.ConnectionInfo:
    """The hub, for kopf; called again when the server no longer accepts what it returned."""
    access = InCluster() if kubeconfig is None else KubeconfigFile(kubeconfig)
    client = await access.open()
    try:
        configuration = client.configuration
        token = await configuration.get_api_key_with_prefix(_TOKEN)
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert or None,
            insecure=False,
            token=None if token is None else token.rpartition(" ")[2],  # the library writes Bearer, and bearer
            certificate_path=configuration.cert_file or None,
            private_key_path=configuration.key_file or None,
            expiration=datetime.datetime.now(datetime.UTC) + GOOD_FOR if kubeconfig is None else None,
        )
    finally:
        await client.close()  # type: ignore[no-untyped-call]
