"""Lease, work and telemetry policies of a SyncGroup."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import HttpUrl
from sync_runtime.contract.rules import Invariant, Rule

OnClusterLost = Literal["Hold", "Replace"]
WorkMode = Literal["Disabled", "Leased"]

DAY_SECONDS = 24 * 60 * 60


class LeasePolicy(Model):
    """When a member counts as lost, and how fast it may be replaced."""

    duration_seconds: int = Field(
        40, ge=5, le=3600, description="A member whose lease was not renewed for so long is lost."
    )
    renew_interval_seconds: int = Field(10, ge=1, le=1800, description="How often a member renews its lease.")
    max_concurrent_replacements: int = Field(2, ge=1, le=1024, description="Most replacements under way at once.")
    max_replacements_per_hour: int = Field(
        30, ge=0, le=100_000, description="Most replacements in an hour. 0: members are never replaced."
    )
    on_cluster_lost: OnClusterLost = Field(
        "Hold",
        description="What happens to the members of a cluster that cannot be reached: Hold keeps their places, Replace "
        "fills them elsewhere (placement.fallback) after lostGraceSeconds.",
    )
    lost_grace_seconds: int = Field(
        900, ge=5, le=7 * DAY_SECONDS, description="How long a cluster must be out of reach before Replace acts."
    )

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel="self.renewIntervalSeconds * 2 <= self.durationSeconds",
            message="renewIntervalSeconds must be at most half of durationSeconds, so that one renewal may be lost",
            holds=lambda self: self.renew_interval_seconds * 2 <= self.duration_seconds,
            field="renewIntervalSeconds",
        ),
        Rule(
            cel="self.lostGraceSeconds >= self.durationSeconds",
            message="lostGraceSeconds must be at least durationSeconds",
            holds=lambda self: self.lost_grace_seconds >= self.duration_seconds,
            field="lostGraceSeconds",
        ),
    )


class Work(Model):
    """Work leases: prompt groups handed to rollout workers."""

    mode: WorkMode = Field(
        "Disabled",
        description="Leased: the trainer's sidecar leases prompt groups to workers that are fresh enough. Disabled: "
        "prompts reach the workers some other way.",
    )
    lease_seconds: int = Field(
        600,
        ge=1,
        le=DAY_SECONDS,
        description="A prompt group without a result after so long is given to another worker.",
    )
    max_inflight_per_worker: int = Field(8, ge=1, le=4096, description="Most prompt groups that one worker holds.")
    max_attempts: int = Field(5, ge=1, le=1000, description="Leases of one prompt group before it is given up.")
    max_payload_bytes: int = Field(
        4 * 2**20, ge=1024, le=64 * 2**20, description="Largest prompt group or result, in bytes."
    )


class Telemetry(Model):
    """Traces of versions."""

    endpoint: HttpUrl | None = Field(
        None,
        description="OTLP/HTTP endpoint for traces, for example `http://collector:4318`. Off if not given; OTEL_* "
        "variables of the runtime win.",
    )
    query_endpoint: HttpUrl | None = Field(
        None,
        description="Base URL of the query API of the backend that keeps the traces (Jaeger's), for example "
        "`http://jaeger:16686`. `kubectl syncgroup trace` asks there.",
    )
    sampled_members_per_region: int = Field(
        2, ge=0, le=64, description="Members per region, besides its relay, that join the trace of a version."
    )
