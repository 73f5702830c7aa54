"""A member's identity while it runs: read again when its files change, so that certificates rotate without a restart.

New handshakes use the newest set that is whole; connections that exist keep theirs. A set that is half replaced, broken
or of another member changes nothing: the last good one stays in use, and `problem` says what is wrong. Thread-safe.
"""

from __future__ import annotations

import datetime
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

from sync_runtime.identity.errors import IdentityError, WrongMemberError
from sync_runtime.identity.files import IdentityFiles, read_folder, state_of
from sync_runtime.identity.names import MemberIdentity
from sync_runtime.identity.tls import make_client_context, make_server_context


@dataclass(frozen=True)
class LoadedIdentity:
    """One set of files with the TLS contexts made from it."""

    files: IdentityFiles
    server: ssl.SSLContext
    client: ssl.SSLContext

    @property
    def expires_at(self) -> datetime.datetime:
        """When its certificate ends."""
        return self.files.certificate.not_after


class CertificateWatch:
    """The identity in a folder, always the newest good one; raises IdentityFilesError if there is none at first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        # The state is taken before the files are read: what changes meanwhile is seen as a change the next time.
        self._state = state_of(folder)
        self._loaded = _load(folder)
        self._problem: IdentityError | None = None

    def current(self) -> LoadedIdentity:
        """The newest good set; looks at the folder first, a few microseconds."""
        with self._lock:
            state = state_of(self._folder)
            if state != self._state:
                self._state = state
                self._reload()
            return self._loaded

    def server_context(self) -> ssl.SSLContext:
        """For the next connection that comes in."""
        return self.current().server

    def client_context(self) -> ssl.SSLContext:
        """For the next connection that goes out."""
        return self.current().client

    @property
    def identity(self) -> MemberIdentity:
        """Who this member is; never changes."""
        return self._loaded.files.identity

    @property
    def expires_at(self) -> datetime.datetime:
        """When the current certificate ends."""
        return self.current().expires_at

    @property
    def problem(self) -> IdentityError | None:
        """What is wrong with the files as they are now, if the last good set had to stay in use."""
        self.current()
        return self._problem

    def _reload(self) -> None:
        try:
            loaded = _load(self._folder)
            if loaded.files.identity != self.identity:
                raise WrongMemberError(
                    f"the new certificate in {self._folder} is of {loaded.files.identity}, "
                    f"but this is {self.identity}: the old one stays in use"
                )
        except IdentityError as error:
            self._problem = error
            return
        self._loaded, self._problem = loaded, None


def _load(folder: Path) -> LoadedIdentity:
    files = read_folder(folder)
    return LoadedIdentity(files, make_server_context(files), make_client_context(files))
