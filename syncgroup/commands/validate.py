"""`syncgroup validate FILE…`: would the API server take these files? Answered offline, from the contract."""

from __future__ import annotations

import argparse

from sync_runtime.contract.documents import KINDS, load_resource
from sync_runtime.contract.errors import InvalidDocumentError
from sync_runtime.contract.names import API_GROUP
from syncgroup.errors import BAD_INPUT_EXIT_CODE, CommandError
from syncgroup.manifests import Document, read_documents
from syncgroup.output import complain, say


def configure(parser: argparse.ArgumentParser) -> None:
    """The files."""
    parser.description = "Check SyncGroup and SyncCluster files as the API server would, without one."
    parser.add_argument("files", nargs="+", metavar="FILE", help="YAML or JSON, several documents allowed; - for stdin")


def run(options: argparse.Namespace) -> int:
    """One line per document that is valid, one per problem; exit code 2 if there was any."""
    verdicts = [_check_file(source) for source in options.files]
    return 0 if all(verdicts) else BAD_INPUT_EXIT_CODE


def _check_file(source: str) -> bool:
    try:
        documents = list(read_documents(source))
    except CommandError as error:
        complain(str(error))
        return False
    ours = [document for document in documents if not _is_foreign(document.content)]
    if not ours:
        complain(f"{source}: holds no {' or '.join(KINDS)}")
        return False
    if len(ours) < len(documents):
        say(f"{source}: {len(documents) - len(ours)} documents of other kinds were not looked at")
    verdicts = [_check(document) for document in ours]  # all of them: one run shows every problem
    return all(verdicts)


def _check(document: Document) -> bool:
    title = f"{document.source}: {_title(document.content)}"
    try:
        load_resource(document.content)
    except InvalidDocumentError as error:
        for problem in error.problems:
            complain(f"{title}: {problem}")
        return False
    say(f"{title} is valid")
    return True


def _is_foreign(content: object) -> bool:
    """Whether a document is plainly meant for another API: files often hold a Namespace or Secret beside ours."""
    if not isinstance(content, dict):
        return False
    kind, version = content.get("kind"), content.get("apiVersion")
    return isinstance(kind, str) and isinstance(version, str) and kind not in KINDS and API_GROUP not in version


def _title(content: object) -> str:
    if not isinstance(content, dict):
        return "document"
    metadata = content.get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    name = "/".join(str(part) for part in (names.get("namespace"), names.get("name")) if part)
    return f"{content.get('kind') or 'document'} {name or '(no name)'}"
