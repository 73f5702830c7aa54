"""What an API server may answer, as a sentence: no such kind, no rights, no login, trouble of its own."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from syncgroup.cli import main
from tests.unit.kubectl.samples import group

LIST = "/apis/syncgroup.dev/v1alpha1/namespaces/rl/syncgroups"
ANYWHERE = "/apis/syncgroup.dev/v1alpha1/syncgroups"


def failure(code: int, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}


class ApiServer(http.server.BaseHTTPRequestHandler):
    """Answers by path; what it does not know is not there."""

    answers: ClassVar[dict[str, tuple[int, dict[str, Any]]]] = {}
    patches: ClassVar[list[dict[str, Any]]] = []

    def do_GET(self) -> None:
        self._answer(self.answers.get(self.path.partition("?")[0], failure(404, "the server could not find it")))

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.patches.append(body)
        stored = dict(self.answers[self.path.partition("?")[0]][1])
        conflict = len(self.patches) < 2
        self._answer(
            failure(409, "it was changed")
            if conflict
            else (200, {**stored, "spec": {**stored["spec"], **body["spec"]}})
        )

    def _answer(self, answer: tuple[int, dict[str, Any]]) -> None:
        data = json.dumps(answer[1]).encode()
        self.send_response(answer[0])
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., tuple[int, str, str]]]:
    ApiServer.answers, ApiServer.patches = {}, []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), ApiServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        document = {
            "current-context": "here",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "rl"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(document))

        def run(*words: str) -> tuple[int, str, str]:
            code = main([*words, "--kubeconfig", str(path)])
            captured = capsys.readouterr()
            return code, captured.out, captured.err

        yield run
        server.shutdown()


def stored() -> dict[str, Any]:
    body = group(status=None).to_document()
    body["metadata"] = {**body["metadata"], "resourceVersion": "7", "generation": 3}
    return body


def listed(*bodies: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 200, {"kind": "SyncGroupList", "apiVersion": "v1", "metadata": {}, "items": list(bodies)}


@pytest.mark.parametrize("words", [("top",), ("why", "grpo"), ("replace", "near-0"), ("scrub", "grpo")])
def test_a_cluster_without_the_kind_is_told_to_install_the_chart(types: Any, words: tuple[str, ...]) -> None:
    code, _, said = types(*words)
    assert code == 2
    assert "the cluster of context here knows no SyncGroups: install the chart there (`helm install syncgroup" in said


def test_a_person_who_is_not_known_is_told_to_log_in(types: Any) -> None:
    ApiServer.answers = {LIST: failure(401, "Unauthorized")}
    assert types("top")[2] == "syncgroup: the API server of context here does not know you: log in again.\n"


def test_a_person_without_rights_is_told_which_role_holds_them(types: Any) -> None:
    ApiServer.answers = {LIST: failure(403, 'User "x" cannot list resource "syncgroups"')}
    said = types("top")[2]
    assert 'User "x" cannot list resource "syncgroups"' in said
    assert "kubectl create rolebinding -n rl --clusterrole=syncgroup-viewer" in said


def test_trouble_of_the_server_is_in_its_own_words(types: Any) -> None:
    ApiServer.answers = {LIST: failure(500, "etcd is away")}
    code, _, said = types("top")
    assert (code, "etcd is away" in said) == (2, True)


def test_a_group_in_another_namespace_is_found_by_its_name(types: Any) -> None:
    there = {"metadata": {"name": "grpo", "namespace": "elsewhere"}}
    ApiServer.answers = {LIST: listed(), ANYWHERE: listed(there)}
    assert (
        "there is no SyncGroup grpo in namespace rl, but one in elsewhere: give -n elsewhere."
        in types("why", "grpo")[2]
    )


def test_a_name_that_is_nearly_right_gets_the_right_one(types: Any) -> None:
    ApiServer.answers = {LIST: listed(stored())}
    assert "there is no SyncGroup gpro in namespace rl; did you mean grpo?" in types("why", "gpro")[2]


def test_what_may_not_be_seen_is_said_and_the_rest_is_shown(types: Any) -> None:
    ApiServer.answers = {LIST: listed(stored()), f"{LIST}/grpo": (200, stored())}
    ApiServer.answers["/api/v1/namespaces/rl/pods"] = failure(403, "no")
    ApiServer.answers["/apis/coordination.k8s.io/v1/namespaces/rl/leases"] = failure(403, "no")
    code, shown, _ = types("top", "grpo")
    assert code == 0
    assert "note: you may not list pods in namespace rl, so they are left out" in shown
    assert "rl/grpo  Unseen" in shown


def test_a_namespace_without_groups_says_so(types: Any) -> None:
    ApiServer.answers = {LIST: listed()}
    assert types("top") == (0, "there is no SyncGroup in namespace rl\n", "")


def test_a_request_is_written_by_compare_and_swap_and_tried_again(types: Any) -> None:
    ApiServer.answers = {LIST: listed(stored()), f"{LIST}/grpo": (200, stored())}
    code, shown, _ = types("scrub", "grpo", "--id", "one")
    assert (code, shown) == (0, "Scrub of grpo is asked for: request one\n")
    assert (
        ApiServer.patches
        == [
            {"metadata": {"resourceVersion": "7", "uid": "u-1"}, "spec": {"requests": [{"id": "one", "type": "Scrub"}]}}
        ]
        * 2
    )
