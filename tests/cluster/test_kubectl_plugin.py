"""`kubectl syncgroup` on a real API server with a real operator, typed into the real kubectl by an ordinary user.

One group for all tests: they look at it, and ask things of it, in an order that does not matter.
"""

from __future__ import annotations

import http.server
import json
import os
import pty
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from syncgroup_operator.manifests import roles
from tests.support import processtree
from tests.support.kubectl_plugin import Person
from tests.support.operator_groups import Group, beating_group
from tests.support.operators import OperatorHub, OperatorProcess, apply, group_of
from tests.unit.telemetry.test_waterfall import jaeger
from tools.devcluster.api import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

NAMESPACE = "kubectl-plugin"
VERSION = {"lineage": "0a1b2c", "seq": 7, "step": 70}


@pytest.fixture(scope="module")
def operators(hub: OperatorHub) -> Iterator[list[OperatorProcess]]:
    """The operator that runs; a test may end it and put another one here."""
    running = [OperatorProcess(hub, "plugin-0", {})]
    yield running
    running[-1].stop()


@pytest.fixture(scope="module")
def group(hub: OperatorHub, operators: list[OperatorProcess]) -> Iterator[Group]:
    with beating_group(hub.region, NAMESPACE) as found:
        found.driver.report = {"version": VERSION}
        found.write(replicas=2, lease={"durationSeconds": 20, "lostGraceSeconds": 20})
        found.ready()
        found.alive()
        yield found


def person(hub: OperatorHub, folder: Path, name: str, role: str) -> Person:
    """Somebody with a role of Kubernetes' own in the group's namespace, and nothing else."""
    region = hub.region
    for document in roles.role_documents()["people.yaml"]:
        apply(region, document)
    region.kubectl("create", "serviceaccount", name, "-n", NAMESPACE)
    account = f"{NAMESPACE}:{name}"
    region.kubectl(
        "create", "rolebinding", name, "-n", NAMESPACE, f"--clusterrole={role}", f"--serviceaccount={account}"
    )
    document = yaml.safe_load(region.service_account_kubeconfig(NAMESPACE, name))
    for context in document["contexts"]:
        context["context"]["namespace"] = NAMESPACE
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document))
    found = Person(region, folder, kubeconfig)
    wait_until(lambda: found.types("get", "syncgroups").returncode == 0, "the aggregated role", 30.0)
    return found


@pytest.fixture(scope="module")
def editor(hub: OperatorHub, group: Group, tmp_path_factory: pytest.TempPathFactory) -> Person:
    return person(hub, tmp_path_factory.mktemp("editor"), "editor", "edit")


@pytest.fixture(scope="module")
def viewer(hub: OperatorHub, group: Group, tmp_path_factory: pytest.TempPathFactory) -> Person:
    return person(hub, tmp_path_factory.mktemp("viewer"), "viewer", "view")


def status_of(group: Group) -> dict[str, Any]:
    found: dict[str, Any] = group_of(group.region, NAMESPACE, "demo")["status"]
    return found


def request(group: Group, wanted: str) -> dict[str, Any]:
    return next((one for one in status_of(group).get("requests", ()) if one["id"] == wanted), {})


def test_a_viewer_sees_the_group_its_regions_and_its_members(viewer: Person, group: Group) -> None:
    done = viewer.syncgroup("top", "demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{NAMESPACE}/demo  Ready  version 7 (step 70)" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["local/us-east", "2/2", "7", "0"] in [row[:4] for row in rows]
    assert {group.name_of("trainer", 0), group.name_of("near", 0)} <= {row[0] for row in rows if row}
    assert "\x1b" not in done.stdout

    every = json.loads(viewer.syncgroup("top", "-o", "json").stdout)["groups"]
    assert [one["name"] for one in every] == ["demo"]
    assert all(one["leaseAgeSeconds"] < 60 for one in every[0]["members"])
    assert yaml.safe_load(viewer.syncgroup("top", "demo", "-o", "yaml").stdout)["status"]["rolloutsReady"] == "2/2"


def test_a_healthy_group_is_said_to_be_healthy(viewer: Person) -> None:
    wait_until(lambda: viewer.syncgroup("why", "demo").returncode == 0, "a healthy group", 30.0)
    assert viewer.syncgroup("why", "demo").stdout.startswith(f"{NAMESPACE}/demo is healthy: the trainer and 2 members")


def test_links_are_told_with_what_the_plan_allows(viewer: Person) -> None:
    done = viewer.syncgroup("links", "demo")
    assert done.returncode == 0
    assert "local/us-east → local/us-east" in done.stdout
    assert "  plan: Fast, " in done.stdout


def test_a_viewer_may_not_ask_for_anything_and_is_told_whom_to_ask(viewer: Person, group: Group) -> None:
    before = group_of(group.region, NAMESPACE, "demo")["spec"]["requests"]
    done = viewer.syncgroup("scrub", "demo")
    assert done.returncode == 2
    assert "you may not do this" in done.stderr
    assert "kubectl create rolebinding" in done.stderr
    assert group_of(group.region, NAMESPACE, "demo")["spec"]["requests"] == before


def test_a_member_is_replaced_once_however_often_it_is_asked_for(editor: Person, group: Group) -> None:
    victim, before = group.name_of("near", 1), group.uids()
    first = editor.syncgroup("replace", "near-1", "--id", "once", "--wait")
    assert first.returncode == 0, first.stderr
    assert "Done: its successor serves in local/us-east" in first.stdout
    after = group.uids()
    assert {name for name in before if after[name] != before[name]} == {victim}
    total = status_of(group)["replacementsTotal"]
    again = editor.syncgroup("replace", victim, "--id", "once", "--wait", "-o", "json")
    assert json.loads(again.stdout)["state"] == "Done"
    assert group.uids() == after
    assert status_of(group)["replacementsTotal"] == total
    assert status_of(group)["replacements"][0]["reason"] == "Requested"


def test_a_request_made_while_no_operator_runs_is_honoured_by_the_next_which_repeats_no_older_one(
    editor: Person, group: Group, hub: OperatorHub, operators: list[OperatorProcess]
) -> None:
    assert editor.syncgroup("replace", "near-1", "--id", "before", "--wait").returncode == 0
    before, total = group.uids(), status_of(group)["replacementsTotal"]
    operators[-1].stop()
    assert editor.syncgroup("replace", "near-0", "--id", "later").returncode == 0
    assert group.uids() == before
    operators.append(OperatorProcess(hub, "plugin-1", {}))
    group.wait(lambda: request(group, "later").get("state") == "Done", "the replacement")
    after = group.uids()
    assert {name for name in before if after[name] != before[name]} == {group.name_of("near", 0)}
    assert editor.syncgroup("replace", "near-1", "--id", "before", "--wait").returncode == 0  # an old spec comes back
    assert group.uids() == after
    assert status_of(group)["replacementsTotal"] == total + 1


def test_a_scrub_travels_in_the_plan_and_is_done_when_all_members_have_answered(editor: Person, group: Group) -> None:
    assert editor.syncgroup("scrub", "demo", "--id", "tuesday").returncode == 0
    group.wait(lambda: bool(request(group, "tuesday")) and "scrubRequest" in group.plan(), "the operator's look")
    number = group.plan()["scrubRequest"]
    assert request(group, "tuesday")["state"] == "Running"
    group.driver.report = {"version": VERSION, "scrubAnswer": {"request": number, "result": "Passed"}}
    done = editor.syncgroup("scrub", "demo", "--id", "tuesday", "--wait")
    assert done.returncode == 0
    assert "was asked for before: request tuesday" in done.stdout
    assert "the weights of all 2 members that serve are what they should be" in done.stdout


def test_why_names_the_cause_and_the_next_command(editor: Person, group: Group) -> None:
    image = {"spec": {"trainer": {"container": "nobody"}}}
    path = f"/apis/syncgroup.dev/v1alpha1/namespaces/{NAMESPACE}/syncgroups/demo"
    group.region.api("PATCH", path, image, content_type="application/merge-patch+json")
    try:
        wait_until(lambda: editor.syncgroup("why", "demo").returncode == 1, "a group that is not Ready", 30.0)
        group.wait(lambda: "ContainerNotFound" in editor.syncgroup("why", "demo").stdout, "the cause")
        found = json.loads(editor.syncgroup("why", "demo", "-o", "json").stdout)
        assert found["findings"][0]["reason"] == "ContainerNotFound"
        assert "spec.trainer.container: the template has no container nobody" in found["findings"][0]["sentence"]
        assert found["next"][0] == f"kubectl edit syncgroup -n {NAMESPACE} demo"
    finally:
        mended: dict[str, Any] = {"spec": {"trainer": {"container": None}}}
        group.region.api("PATCH", path, mended, content_type="application/merge-patch+json")
        group.ready()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("why", "deno"), f"there is no SyncGroup deno in namespace {NAMESPACE}; did you mean demo?"),
        (("replace", "naer-0"), "no SyncGroup here has a member naer-0; did you mean near-0"),
        (("top", "-A"), "you may not do this"),
        (("top", "-n", "kube-system"), "--clusterrole=syncgroup-viewer"),
    ],
    ids=["no group", "no member", "all namespaces", "another namespace"],
)
def test_what_goes_wrong_is_a_sentence(viewer: Person, words: tuple[str, ...], said: str) -> None:
    done = viewer.syncgroup(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_kubectl_completes_commands_groups_and_members(editor: Person, group: Group) -> None:
    wanted = {("w",): "why", ("why", ""): "demo", ("replace", "demo-n"): group.name_of("near", 1)}
    for words, found in wanted.items():  # a completion waits for no slow cluster: on a busy machine it is asked again
        wait_until(partial(completes, editor, words, found), f"the completion of {words}", 30.0)


def completes(person: Person, words: tuple[str, ...], found: str) -> bool:
    return found in person.types("__complete", "syncgroup", *words).stdout.split()


def test_the_trace_of_a_version_is_printed_from_a_query_api(editor: Person) -> None:
    asked: list[str] = []

    class Backend(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(jaeger()).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Backend) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = editor.syncgroup("trace", "demo", "7", "--backend", f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert "version 7" in done.stdout
    assert len(asked) == 1
    assert "service=" in asked[0]


def test_on_a_terminal_it_is_live_in_colour_and_ends_with_ctrl_c(viewer: Person) -> None:
    shown, code = on_a_terminal(viewer, ["top", "demo", "--every", "0.3"], lambda text: text.count("REGION") >= 4)
    assert code == 0, shown
    assert "\x1b[32mReady\x1b[0m" in shown
    assert shown.rstrip().endswith("\x1b[?25h")  # the cursor is back


def on_a_terminal(person: Person, words: list[str], enough: Any, timeout_s: float = 120.0) -> tuple[str, int]:
    """What a terminal shows until it is enough; then Ctrl-C."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [person.kubectl, "syncgroup", *words], env={**person.environment, "TERM": "xterm"}, stdin=theirs, stdout=theirs,
        stderr=theirs, start_new_session=True, preexec_fn=processtree.hear_interrupts,  # noqa: PLW1509 it only sets a signal
    )  # fmt: skip
    os.close(theirs)
    shown, end_s, told = "", time.monotonic() + timeout_s, False
    while time.monotonic() < end_s:
        ready, _, _ = select.select([ours], [], [], 0.2)
        try:
            data = os.read(ours, 65536) if ready else b" "[:0]
        except OSError:
            break  # the other end is closed
        shown += data.decode(errors="replace")
        if enough(shown) and not told:
            told = True
            os.killpg(process.pid, signal.SIGINT)
        if process.poll() is not None and not ready:
            break
    os.close(ours)
    return shown, process.wait(10)
