"""Puts the CRDs of the tree on an API server and waits until it serves them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import yaml

CRDS_DIR = Path(__file__).resolve().parents[2] / "crds"
CRD_API = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ESTABLISHED_TIMEOUT_S = 30.0


class Api(Protocol):
    """The one method of the `region` fixture that is needed here."""

    def api(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, content_type: str = "application/json"
    ) -> tuple[int, dict[str, Any]]: ...


def apply_crds(region: Api) -> None:
    """Apply crds/*.yaml by server-side apply; returns when each is Established and answers a list."""
    for path in sorted(CRDS_DIR.glob("*.yaml")):
        definition = yaml.safe_load(path.read_text(encoding="utf-8"))
        name = definition["metadata"]["name"]
        status, answer = region.api(
            "PATCH",
            f"{CRD_API}/{name}?fieldManager=tests&force=true&fieldValidation=Strict",
            definition,
            content_type="application/apply-patch+yaml",
        )
        assert status in (200, 201), f"{path.name} was refused: {answer.get('message', answer)}"
        _wait_until_served(region, definition)


def _wait_until_served(region: Api, definition: Mapping[str, Any]) -> None:
    spec = definition["spec"]
    listing = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}?limit=1"
    deadline_s = time.monotonic() + ESTABLISHED_TIMEOUT_S
    while time.monotonic() < deadline_s:
        _, current = region.api("GET", f"{CRD_API}/{definition['metadata']['name']}")
        conditions = {item["type"]: item for item in current.get("status", {}).get("conditions") or []}
        if conditions.get("Established", {}).get("status") == "True" and region.api("GET", listing)[0] == 200:
            # Structural faults do not stop a CRD from being established; they only show here.
            assert "NonStructuralSchema" not in conditions, conditions["NonStructuralSchema"]["message"]
            return
        time.sleep(0.05)
    raise AssertionError(f"{definition['metadata']['name']} was not established in {ESTABLISHED_TIMEOUT_S} s")
