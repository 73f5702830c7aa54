"""Status codes become the operator's errors."""

from __future__ import annotations

from typing import Any

import pytest

from syncgroup_operator import errors
from syncgroup_operator.kube.failures import error_of, error_type, retry_after_s, unreachable


@pytest.mark.parametrize(
    ("status", "expected", "retry"),
    [
        (400, errors.RefusedError, False),
        (401, errors.DeniedError, True),
        (403, errors.DeniedError, True),
        (404, errors.NotFoundError, True),
        (405, errors.RefusedError, False),
        (408, errors.ApiError, True),
        (409, errors.ConflictError, True),
        (410, errors.GoneError, True),
        (413, errors.RefusedError, False),
        (422, errors.RefusedError, False),
        (429, errors.ThrottledError, True),
        (500, errors.ApiError, True),
        (503, errors.ApiError, True),
        (302, errors.ApiError, True),
    ],
)
def test_every_status_has_its_error(status: int, expected: type[errors.ApiError], retry: bool) -> None:
    assert error_type(status) is expected
    error = error_of("eu", "get /x", status, {"message": "because"})
    assert (type(error), error.status, error.cluster, error.retry) == (expected, status, "eu", retry)
    assert "eu" in str(error)
    assert "because" in str(error)


def test_the_time_to_wait_comes_from_header_or_body() -> None:
    body = {"details": {"retryAfterSeconds": 7}}
    assert error_of("eu", "x", 429, body).retry_after_s == 7.0
    assert error_of("eu", "x", 429, body, "3").retry_after_s == 3.0
    assert error_of("eu", "x", 429, {}).retry_after_s is None
    for odd in ("soon", "", "nan", "inf", "-1", "Wed, 21 Oct 2027 07:28:00 GMT"):
        assert retry_after_s(odd) is None


def test_odd_answers_still_give_a_sentence() -> None:
    answers: list[dict[str, Any]] = [
        {},
        {"message": 3},
        {"message": ""},
        {"details": []},
        {"details": {"retryAfterSeconds": "7"}},
    ]
    for answer in answers:
        assert "no reason given" in str(error_of("eu", "x", 500, answer))
    assert len(str(error_of("eu", "x", 500, {"message": "a" * 10**6}))) < 2000


def test_no_answer_names_the_cause() -> None:
    assert "ConnectionResetError" in str(unreachable("eu", "get /x", ConnectionResetError()))
    assert unreachable("eu", "get /x", OSError("refused")).cluster == "eu"
