import threading
import time

import pytest

from sync_runtime.errors import OldTermError, SidecarLostError
from sync_runtime.library.replies import Replies
from sync_runtime.local import messages as m
from tests.support.noticing import AT_ONCE_S, FIRST_TIMER_S

D = "0" * 32
GO = m.Go(D, 1, 1)


def test_an_answer_reaches_whoever_asked() -> None:
    replies = Replies()
    replies.expect(m.Activate)
    threading.Timer(0.02, replies.arrived, [GO]).start()
    assert replies.take(m.Go, 2.0) == GO


def test_an_error_is_raised_where_it_was_asked_for() -> None:
    replies = Replies()
    replies.expect(m.Activate)
    assert replies.arrived(m.Error("ACTIVATE", "OldTermError", "replaced", False))
    assert isinstance(replies.error_of(m.Activate), OldTermError)
    with pytest.raises(OldTermError, match="replaced"):
        replies.take(m.Go, 0.0)


def test_what_nobody_waits_for_is_not_kept() -> None:
    replies = Replies()
    assert not replies.arrived(GO)
    assert not replies.arrived(m.Head(D, 1, D, None))
    replies.expect(m.Activate)
    with pytest.raises(SidecarLostError, match="within 0 s"):
        replies.take(m.Go, 0.0)
    assert not replies.arrived(GO)  # too late


def test_an_answer_to_the_last_request_is_not_taken_for_this_one() -> None:
    replies = Replies()
    replies.expect(m.Activate)
    replies.arrived(GO)
    replies.expect(m.Activate)
    assert not replies.is_answered(m.Activate)


def test_everyone_hears_that_the_sidecar_is_gone() -> None:
    replies = Replies()
    replies.expect(m.Activate)
    replies.expect(m.Publish)
    threading.Timer(0.02, replies.fail_all, [SidecarLostError("gone")]).start()
    began = time.monotonic()
    with pytest.raises(SidecarLostError, match="gone"):
        replies.take(m.Go, FIRST_TIMER_S)
    with pytest.raises(SidecarLostError, match="gone"):
        replies.take(m.Published, FIRST_TIMER_S)
    assert time.monotonic() - began < AT_ONCE_S
