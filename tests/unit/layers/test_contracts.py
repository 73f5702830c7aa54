"""Every import contract is kept by the design itself and broken by a deliberate bad import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from importlinter import api

Lint = Callable[..., tuple[frozenset[str], str]]
Write = Callable[[Mapping[str, str]], Path]

CONFIG = Path(__file__).parents[3] / "importlinter.toml"
NAMES = {contract["id"]: contract["name"] for contract in api.read_configuration(str(CONFIG))["contracts_options"]}

R, O = "sync_runtime", "syncgroup_operator"  # noqa: E741 - the table below is read by column

# contract, what the bad import would mean, the module and its source
BAD_IMPORTS: list[tuple[str, str, dict[str, str]]] = [
    ("tree", "a room nobody drew", {f"{R}.attic": ""}),
    ("tree", "a rename that would slip from its contract", {f"{R}.transport.scheduler": ""}),
    ("packages", "the runtime knows the operator", {f"{R}.session.publish": f"import {O}.errors"}),
    ("packages", "the operator calls the command line", {f"{O}.execute": "import syncgroup"}),
    ("packages", "the runtime calls the command line", {f"{R}.sidecar": "from syncgroup import cli"}),
    ("runtime-layers", "codec knows delta", {f"{R}.codec.cpu": f"from {R}.delta import naive"}),
    ("runtime-layers", "delta knows codec", {f"{R}.delta.apply": f"from {R}.codec import frame"}),
    ("runtime-layers", "bucket knows codec", {f"{R}.bucket.packer": f"import {R}.codec.frame"}),
    ("runtime-layers", "transport knows links", {f"{R}.transport.stream": f"import {R}.links"}),
    ("runtime-layers", "a stage looks up to the session", {f"{R}.transport.child": f"import {R}.session.machine"}),
    ("runtime-layers", "the session calls the control API", {f"{R}.session.receive": f"import {R}.control"}),
    ("runtime-layers", "the sidecar starts the library", {f"{R}.sidecar": f"import {R}.library"}),
    ("runtime-layers", "the sidecar imports the GPU worker", {f"{R}.sidecar": f"import {R}.gpu_worker"}),
    ("runtime-layers", "the shared part uses the runtime's errors", {f"{R}.identity": f"import {R}.errors"}),
    ("runtime-layers", "errors drag cryptography along", {f"{R}.errors": f"import {R}.identity"}),
    ("runtime-layers", "by a detour", {f"{R}.links": f"import {R}.tensors", f"{R}.tensors": f"import {R}.work"}),
    ("operator-layers", "kube calls execute", {f"{O}.kube": f"import {O}.execute"}),
    ("operator-layers", "planning builds manifests", {f"{O}.planning.diff": f"from {O} import manifests"}),
    ("operator-layers", "manifests ask the API", {f"{O}.manifests.pods": f"import {O}.kube"}),
    ("operator-layers", "execute wakes the handlers", {f"{O}.execute": f"import {O}.handlers.loop"}),
    ("meeting", "the operator sends bytes", {f"{O}.execute": f"import {R}.transport.stream"}),
    ("meeting", "the operator reads the runtime's settings", {f"{O}.settings": f"from {R} import settings"}),
    ("spans-leave", "a pass sends its own spans", {f"{O}.execute": f"import {R}.telemetry"}),
    ("front-door", "the sidecar takes a name from the root", {f"{R}.sidecar": f"from {R} import Publisher"}),
    ("front-door", "the operator imports the root", {f"{O}.handlers": f"import {R}"}),
    ("stages", "the relay decodes", {f"{R}.transport.child": f"import {R}.codec.frame"}),
    ("stages", "work leases look at deltas", {f"{R}.work": f"import {R}.delta.digest"}),
    ("local-only", "the library opens a connection", {f"{R}.library.publisher": f"import {R}.transport.stream"}),
    ("local-only", "the library makes spans", {f"{R}.library": f"import {R}.telemetry"}),
    ("local-only", "the GPU worker spools", {f"{R}.gpu_worker": f"import {R}.bucket.spool"}),
    ("no-cluster", "explain asks a cluster", {f"{O}.explain": f"import {O}.kube"}),
    ("no-cluster", "crdgen applies", {f"{O}.crdgen": f"import {O}.execute"}),
    ("product", "the runtime uses a tool", {f"{R}.work": "import tools.devcluster"}),
    ("product", "the command line uses a test's helper", {"syncgroup.demo": "from tests.support import fakes"}),
    ("tools", "a tool knows both sides", {"tools.devcluster": f"import {O}.crdgen"}),
    ("tools", "a tool reaches into the runtime", {"tools.devcluster": f"import {R}.transport.wire"}),
    ("tools", "a tool calls the command line", {"tools.devcluster": "import syncgroup"}),
    ("kopf", "execute posts events through kopf", {f"{O}.execute": "import kopf"}),
    ("kopf", "even where the program starts", {f"{O}.__main__": "from kopf import run"}),
    ("kubernetes-clients", "the runtime has a client", {f"{R}.session.publish": "import kubernetes"}),
    ("kubernetes-clients", "another client", {f"{R}.control": "import kr8s"}),
    ("kubernetes-clients", "execute goes past kube", {f"{O}.execute": "from kubernetes import client"}),
    ("telemetry", "the session opens its own spans", {f"{R}.session.receive": "from opentelemetry import trace"}),
    ("telemetry", "the operator's loop, below the handlers", {f"{O}.execute": "import opentelemetry.sdk"}),
    ("obstore", "the session puts by itself", {f"{R}.session.publish": "import obstore"}),
    ("obstore", "the reader knows what it reads from", {f"{R}.transport.object_store.reader": "import obstore"}),
    ("store-decisions", "a pointer is judged by the clock", {f"{R}.transport.object_store.fences": "import time"}),
    ("store-decisions", "a route asks the store", {f"{R}.transport.object_store.route": "import socket"}),
    ("pure", "planning rolls dice", {f"{O}.planning.placement": "import random"}),
    ("pure", "planning reads a clock", {f"{O}.planning.leases": "from time import monotonic"}),
    ("pure", "manifests read the environment", {f"{O}.manifests.pods": "import os"}),
    ("pure", "tuning computes with arrays", {f"{R}.tuning": "import numpy"}),
    ("pure", "the session's machine waits", {f"{R}.session.machine": "import asyncio"}),
    ("pure", "the schedule opens a socket", {f"{R}.transport.schedule": "import socket"}),
    ("pure", "inside a function as well", {f"{R}.tuning": "def f():\n    import subprocess"}),
    ("pure", "by a detour", {f"{O}.planning": f"import {O}.reasons", f"{O}.reasons": "import os"}),
    ("pure", "through the package that holds it", {f"{R}.session": "import threading"}),
    ("torch-free", "the sidecar", {f"{R}.sidecar": "import torch"}),
    ("torch-free", "the relay", {f"{R}.transport.child": "import triton"}),
    ("torch-free", "the operator", {f"{O}.execute": "import torch"}),
    ("torch-free", "the CPU codec", {f"{R}.codec.cpu": "import torch.nn"}),
    (
        "torch-free",
        "the session decodes on the GPU",
        {f"{R}.session.receive": f"import {R}.codec.gpu", f"{R}.codec.gpu": "import triton"},
    ),
    ("library", "validation by pydantic", {f"{R}.library.subscriber": "import pydantic"}),
    ("library", "HTTP from the GPU worker", {f"{R}.gpu_worker": "import aiohttp"}),
    (
        "library",
        "the library codes on the CPU",
        {f"{R}.library.publisher": f"import {R}.codec.cpu", f"{R}.codec.cpu": "import numba"},
    ),
    ("library", "the names' package", {f"{R}.contract": "import pydantic"}),
    (
        "library",
        "the registry imports an engine's adapter",
        {f"{R}.library.registry": f"import {R}.library.engines.vllm", f"{R}.library.engines.vllm": "import vllm"},
    ),
    ("engines", "an adapter with a web server", {f"{R}.library.engines.sglang": "import fastapi"}),
    ("parse-path", "compiled parsing", {f"{R}.codec.frame": "import numba"}),
    ("parse-path", "limits by pydantic", {f"{R}.codec.limits": "import pydantic"}),
    ("light", "identity over HTTP", {f"{R}.identity": "import aiohttp"}),
    ("light", "identity with arrays", {f"{R}.identity.san": "import numpy"}),
]


def test_the_design_itself_keeps_every_contract(stub_tree: Path, lint: Lint) -> None:
    broken, printed = lint(stub_tree)
    assert broken == set()
    assert "not built yet" not in printed
    assert "checks nothing yet" not in printed


@pytest.mark.parametrize(
    ("contract", "sources"),
    [pytest.param(contract, sources, id=f"{contract}: {title}") for contract, title, sources in BAD_IMPORTS],
)
def test_a_bad_import_breaks_its_contract_and_no_other(
    contract: str, sources: dict[str, str], stub_tree: Path, write_modules: Write, lint: Lint
) -> None:
    write_modules(sources)
    broken, printed = lint(stub_tree)
    assert broken == {contract}
    name = NAMES[contract]
    assert f"{name} BROKEN" in printed
    details = printed.partition("Broken contracts")[2]
    assert name in details
    assert any(module in details for module in sources)


def test_every_contract_has_a_bad_import_that_breaks_it() -> None:
    assert {contract for contract, _, _ in BAD_IMPORTS} == set(NAMES)


def test_one_bad_import_can_offend_two_contracts(stub_tree: Path, write_modules: Write, lint: Lint) -> None:
    write_modules({f"{R}.codec.frame": "import torch"})
    assert lint(stub_tree)[0] == {"parse-path", "torch-free"}


def test_imports_that_the_design_asks_for_are_kept(stub_tree: Path, write_modules: Write, lint: Lint) -> None:
    write_modules(
        {
            f"{R}": f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from {R}.library import Publisher",
            f"{R}.contract.group": f"import pydantic\nfrom {R}.contract import names",
            f"{R}.identity": f"import os, cryptography.x509\nfrom {R}.contract import names",
            f"{R}.tuning": f"import math\nfrom {R} import contract",
            f"{R}.errors": f"from {R}.contract import names",
            f"{R}.tensors": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch",
            f"{R}.telemetry": f"import opentelemetry.sdk\nimport {R}.settings",
            f"{R}.codec.cpu": f"import numba, numpy\nfrom {R}.codec import frame",
            f"{R}.codec.frame": f"import numpy, struct\nfrom {R} import errors, tensors",
            f"{R}.codec.gpu": "import torch, triton",
            f"{R}.delta.kernels": "import torch, triton",
            f"{R}.library.publisher": f"import torch\nfrom {R} import local, delta\nfrom {R}.codec import gpu",
            f"{R}.library.engines.vllm": f"import vllm\nfrom {R}.library import publisher",
            f"{R}.gpu_worker": f"import {R}.library.publisher",
            f"{R}.membership.api": "import aiohttp, kubernetes",
            f"{R}.membership.lease": f"from {R}.membership import api",
            f"{R}.pod": f"from {R}.membership import api\nfrom {R} import identity, settings",
            f"{R}.transport.stream": f"import asyncio\nfrom {R} import bucket\nfrom {R}.transport import schedule",
            f"{R}.session.receive": f"from {R} import bucket, links, telemetry, transport\nfrom {R}.codec import cpu",
            f"{R}.sidecar": f"from {R} import control, session, membership, pod",
            f"{O}.planning.plan": f"import datetime\nfrom {R} import contract, tuning\nfrom {O} import errors, reasons",
            f"{O}.manifests": f"from {O}.planning import plan",
            f"{O}.identity": f"from {R} import identity",
            f"{O}.kube": f"import kubernetes\nfrom {O} import errors",
            f"{O}.execute": f"from {O} import identity, kube, manifests, planning",
            f"{O}.handlers.loop": f"import kopf\nfrom {O} import execute, settings",
            f"{O}.explain": f"from {O} import manifests, planning",
            f"{O}.crdgen": f"from {R} import contract",
            "syncgroup.top": f"import kubernetes\nimport {R}.links, {O}.explain",
            "tools.devcluster": f"from {R}.contract import names",
        }
    )
    broken, printed = lint(stub_tree)
    assert broken == set(), printed
