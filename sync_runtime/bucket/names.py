"""How the files of an object are called in the spool's folder. Pure."""

from __future__ import annotations

from sync_runtime.bucket.keys import ObjectKey, parse_file_stem
from sync_runtime.errors import FormatError

DATA, JOURNAL, MANIFEST = ".data", ".journal", ".manifest"


def data_name(key: ObjectKey) -> str:
    """The bytes of the object."""
    return key.file_stem + DATA


def journal_name(key: ObjectKey) -> str:
    """Beside the data while the object arrives."""
    return key.file_stem + JOURNAL


def manifest_name(key: ObjectKey) -> str:
    """The envelope; the object exists when this does."""
    return key.file_stem + MANIFEST


def split_name(name: str) -> tuple[ObjectKey, str]:
    """(key, suffix) of a file; raises FormatError where it is none of ours."""
    for suffix in (DATA, JOURNAL, MANIFEST):
        if name.endswith(suffix):
            return parse_file_stem(name.removesuffix(suffix)), suffix
    raise FormatError("the file is not called as an object's is")
