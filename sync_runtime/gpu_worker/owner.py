"""One owner of tensors: its connection, its handles, its session with the sidecar. Ends when the owner goes away.

The thread that receives adopts handles and hands answers out; requests are worked on by a few threads of their own,
since they ask the owner back. Retries nothing: the owner does.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from functools import partial

from sync_runtime.errors import LocalError, LocalProtocolError, SyncError
from sync_runtime.gpu_worker import sessions
from sync_runtime.gpu_worker.pulse import BEAT_S, Pulse
from sync_runtime.gpu_worker.tensors import OwnedTensors
from sync_runtime.library.export_errors import ExportError, OwnerLostError
from sync_runtime.library.export_messages import (
    LINK_ID,
    PROTOCOLS,
    Activate,
    Close,
    Export,
    Hello,
    Message,
    Note,
    Opened,
    Publish,
    Scrub,
    State,
    Valid,
    Validate,
    Welcome,
)
from sync_runtime.library.export_wire import Wire
from sync_runtime.library.settings import LibrarySettings

HELLO_TIMEOUT_S = 10.0
VALIDATE_TIMEOUT_S = 30.0
"""An owner that does not answer for so long is as good as lost; weights are not touched."""
JOIN_S = 2.0
MAX_REQUESTS = 8
"""Of one owner at a time."""
_log = logging.getLogger(__name__)


def _lost(why: str) -> OwnerLostError:
    return OwnerLostError(f"the process that owns the tensors went away: {why}")


def refuse(connection: socket.socket, error: SyncError) -> None:
    """Says why and hangs up, without a word read."""
    wire = Wire(connection, _lost)
    wire.fail(LINK_ID, error)
    wire.end(error)


class OwnerLink:
    """One connection of a user who may dial, from HELLO to its end."""

    def __init__(self, connection: socket.socket, settings: LibrarySettings, broken: Callable[[], None]) -> None:
        self._settings, self._broken = settings, broken
        self._wire = Wire(connection, _lost)
        self._tensors = OwnedTensors(self._validate)
        self._hello: Hello | None = None
        self._session: sessions.Session | None = None
        self._is_opening = False
        self._is_open = False
        self._is_closing = False
        self._working: set[threading.Thread] = set()
        self._pulse = Pulse()
        self._sent: State | None = None
        self._telling = threading.Lock()
        self._ended = threading.Event()

    def serve(self) -> None:
        """Serves until the owner is gone; nothing of it stays."""
        reason: SyncError = _lost("the worker ends")
        try:
            self._hello = self._greeted()
            threading.Thread(target=self._beat, name="owner-beat", daemon=True).start()
            reason = self._wire.run(self._handle)
        except SyncError as error:
            reason = error
            self._wire.fail(LINK_ID, error)
        finally:
            self._ended.set()
            self._wire.end(reason)
            if self._session is not None:
                self._session.close()
            for thread in list(self._working):
                thread.join(JOIN_S)
            self._tensors.release()
            _log.info("an owner is gone: %s", reason)

    def stop(self) -> None:
        """From another thread: the worker ends."""
        self._wire.end(_lost("the worker ends"))

    def _greeted(self) -> Hello:
        hello = self._wire.first(HELLO_TIMEOUT_S)
        if not isinstance(hello, Hello):
            raise LocalProtocolError("the first message must be HELLO")
        both = set(hello.protocols) & set(PROTOCOLS)
        if not both:
            raise LocalProtocolError("owner and GPU worker have no version of their protocol in common: update one")
        if hello.rank >= hello.world_size:
            raise LocalProtocolError(f"rank {hello.rank} does not exist among {hello.world_size}")
        self._wire.send(Welcome(max(both)))
        return hello

    # --- the thread that receives ------------------------------------------------------------------------------------

    def _handle(self, message: Message) -> None:
        if isinstance(message, Export):
            self._adopt(message)
        elif self._wire.resolve(message):
            return
        elif isinstance(message, Publish | Activate | Scrub | Close):
            if self._session is None or not self._is_open:
                self._wire.fail(message.id, LocalError("nothing was opened yet: export tensors first"))
            else:
                self._is_closing = self._is_closing or isinstance(message, Close)
                self._submit(message, partial(self._answer, self._session, message))
        elif isinstance(message, Note):
            if self._session is not None and self._is_open:
                self._session.note(message.tokens_per_second)
        else:
            raise LocalProtocolError(f"an owner sent {type(message).__name__} out of turn")

    def _adopt(self, export: Export) -> None:
        try:
            self._tensors.adopt(export)
        except ExportError as error:
            self._wire.fail(export.id, error)
            raise
        if not self._is_opening:
            self._is_opening = True
            self._submit(export, partial(self._open, export.id))
        else:
            self._wire.resolve(export)

    def _submit(self, request: Export | sessions.Request, work: Callable[[], None]) -> None:
        if len(self._working) >= MAX_REQUESTS:
            raise LocalProtocolError(f"an owner has more than {MAX_REQUESTS} requests under way")
        # Daemons: one that waits for a sidecar must not keep the process when it is told to end.
        thread = threading.Thread(target=self._work, args=(request, work), name="owner-request", daemon=True)
        self._working.add(thread)
        thread.start()

    # --- the threads that work ---------------------------------------------------------------------------------------

    def _work(self, request: Export | sessions.Request, work: Callable[[], None]) -> None:
        is_answered, request_id = False, request.id
        try:
            with self._pulse.under_way(type(request).__name__):
                work()
            is_answered = True
        except OwnerLostError as error:
            self._wire.end(error)  # an owner that gave no answer may be there still, and waits for one
            is_answered = True
        except SyncError as error:
            self._wire.fail(request_id, error)
            is_answered = True
        except RuntimeError as error:
            # The driver's errors stick to the process: a new one is the only cure.
            _log.exception("the GPU failed: this worker ends, and a new one must take over")
            self._wire.fail(request_id, LocalError(f"the GPU worker's GPU failed and it ends: {error}"))
            is_answered = True
            self._broken()
        finally:
            self._working.discard(threading.current_thread())
            if not is_answered:  # a bug: the owner must not wait for an answer that never comes
                self._wire.end(_lost("the worker gave it up after an error of its own"))

    def _open(self, request_id: int) -> None:
        if self._hello is None:
            raise LocalProtocolError("an export came before HELLO")
        session = self._session = sessions.make(self._tensors, self._hello, self._settings)
        session.open()
        if self._ended.is_set():
            session.close()
            return
        self._is_open = True
        self._tell(always=True)
        self._wire.send(Opened(request_id))
        threading.Thread(target=self._watch, args=(session,), name="owner-watch", daemon=True).start()

    def _answer(self, session: sessions.Session, request: sessions.Request) -> None:
        try:
            answer = session.answer(request)
        finally:
            self._tell(always=True)  # the owner's view is right before its caller goes on
        self._wire.send(answer)

    def _watch(self, session: sessions.Session) -> None:
        """Tells the owner what changes."""
        while not self._ended.is_set():
            try:
                self._tell()
                session.watch()
            except OwnerLostError:
                return
            except LocalError:
                if not self._ended.is_set() and not self._is_closing:
                    _log.exception("a session's thread ended: this worker ends, and a new one must take over")
                    self._broken()
                return

    def _beat(self) -> None:
        """Signs of life, whatever the other threads do."""
        while not self._ended.wait(BEAT_S):
            try:
                self._wire.send(self._pulse.beat())
            except OwnerLostError:
                return

    def _tell(self, *, always: bool = False) -> None:
        """One at a time, so that the last word is the newest."""
        with self._telling:
            state = self._session.state() if self._session is not None and self._is_open else None
            if state is not None and (always or state != self._sent):
                self._wire.send(state)
                self._sent = state

    def _validate(self, generation: int) -> Valid | Export:
        request_id = self._wire.new_id()
        answers: tuple[type[Valid | Export], ...] = (Valid, Export)
        return self._wire.ask(Validate(request_id, generation), request_id, answers, VALIDATE_TIMEOUT_S)
