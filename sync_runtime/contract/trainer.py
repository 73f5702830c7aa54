"""The trainer's part of a SyncGroup: where it runs and how other regions reach it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sync_runtime.contract.base import Model
from sync_runtime.contract.fields import AnnotationMap, Cidr, DnsLabel, Host, ListSet, Port
from sync_runtime.contract.names import LOCAL_CLUSTER
from sync_runtime.contract.rules import Invariant, Rule, UpdateRule, immutable
from sync_runtime.contract.template import PodTemplate

ExposureType = Literal["ClusterIP", "NodePort", "LoadBalancer", "External"]


class Exposure(Model):
    """How relays in other regions reach the trainer: they dial one endpoint, nothing dials them."""

    type: ExposureType = Field(
        "ClusterIP",
        description="ClusterIP reaches pods of the trainer's own cluster only. NodePort and LoadBalancer open one port "
        "to other clusters (mutual TLS always). External uses host and port that you provide and makes no Service.",
    )
    host: Host | None = Field(
        None,
        description="Address that other regions dial, without scheme or port. Required with External; with NodePort "
        "and LoadBalancer it replaces the address that the cluster reports.",
    )
    port: Port | None = Field(
        None,
        description="Port that other regions dial. Required with External; with NodePort it asks for this node port; "
        "otherwise the runtime's own data port.",
    )
    annotations: AnnotationMap = Field(
        default_factory=dict, description="Annotations for the Service, for the cloud's load balancer or for DNS."
    )
    source_ranges: Annotated[list[Cidr], Field(max_length=32), ListSet()] = Field(
        default_factory=list,
        description="Address ranges (CIDR) that may connect, enforced by the load balancer. Empty means any.",
    )

    RULES: ClassVar[tuple[Invariant, ...]] = (
        Rule(
            cel="self.type != 'External' || has(self.host)",
            message="exposure type External needs host: the address that other regions dial",
            holds=lambda self: self.type != "External" or self.host is not None,
            field="host",
            reason="FieldValueRequired",
        ),
        Rule(
            cel="self.type != 'External' || has(self.port)",
            message="exposure type External needs port: the port that other regions dial",
            holds=lambda self: self.type != "External" or self.port is not None,
            field="port",
            reason="FieldValueRequired",
        ),
        Rule(
            cel="self.type != 'External' || size(self.annotations) == 0",
            message="annotations go on the Service, and exposure type External makes none; remove them",
            holds=lambda self: self.type != "External" or not self.annotations,
            field="annotations",
            reason="FieldValueForbidden",
        ),
        Rule(
            cel="self.type == 'LoadBalancer' || size(self.sourceRanges) == 0",
            message="sourceRanges are enforced by the load balancer; use them with exposure type LoadBalancer only",
            holds=lambda self: self.type == "LoadBalancer" or not self.source_ranges,
            field="sourceRanges",
            reason="FieldValueForbidden",
        ),
        Rule(
            cel="self.type != 'ClusterIP' || !has(self.host)",
            message="host has no meaning with exposure type ClusterIP; choose External to name an address of your own",
            holds=lambda self: self.type != "ClusterIP" or self.host is None,
            field="host",
            reason="FieldValueForbidden",
        ),
    )


class Trainer(Model):
    """The one pod that publishes weights."""

    cluster: DnsLabel = Field(
        LOCAL_CLUSTER,
        description=f"SyncCluster that runs the trainer; `{LOCAL_CLUSTER}` is the operator's own cluster. Immutable.",
    )
    region: DnsLabel = Field(description="Region that the trainer runs in, for example `us-east-1`. Immutable.")
    template: PodTemplate = Field(description="The trainer's pod.")
    container: DnsLabel | None = Field(
        None, description="Container of the template that trains. The first one if not given."
    )
    exposure: Exposure = Field(default_factory=Exposure, description="How other regions reach the trainer.")

    UPDATE_RULES: ClassVar[tuple[UpdateRule, ...]] = (
        immutable(
            "cluster",
            "cluster",
            "a trainer in a cluster that is out of reach cannot be stopped, and two must never publish; "
            "create another SyncGroup",
        ),
        immutable("region", "region", "links and certificates are kept per region; create another SyncGroup"),
    )
