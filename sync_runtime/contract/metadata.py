"""The little that the contract asks of Kubernetes' own object metadata."""

from __future__ import annotations

import re

from pydantic import ConfigDict, Field

from sync_runtime.contract.base import Model
from sync_runtime.contract.names import NAME_MAX_LENGTH


class ObjectMeta(Model):
    """The parts that the contract looks at; the rest is the API server's business and passes through."""

    model_config = ConfigDict(extra="allow")

    name: str | None = Field(None, description="Name of the object; absent where the API server generates it.")
    namespace: str | None = Field(None, description="Namespace of the object.")
    uid: str | None = Field(None, description="Set by the API server.")
    generation: int | None = Field(None, description="Set by the API server; grows with every change of the spec.")


def name_matches_cel(pattern: str) -> str:
    """The CEL text that the object's own name fits a pattern and a label value."""
    return f"self.metadata.name.size() <= {NAME_MAX_LENGTH} && self.metadata.name.matches('{pattern}')"


def name_matches(name: str | None, pattern: str) -> bool:
    """Its Python twin; a name that the API server is yet to generate cannot be wrong."""
    return name is None or (len(name) <= NAME_MAX_LENGTH and re.fullmatch(pattern, name) is not None)
