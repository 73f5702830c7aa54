"""A wide-area network between network namespaces: rate, delay, jitter, loss, queue, policer and cross traffic per
ordered pair of regions, changed live, with an account of its own lateness. See README.md beside this file.

Knows nothing of Kubernetes: the dev cluster gives it the interfaces of its regions, `Lab` makes regions of its own.
"""

from tools.linkemu.control import Controller
from tools.linkemu.emulator import (
    GATEWAY_ADDRESS,
    GATEWAY_MAC,
    Emulator,
    EmulatorOptions,
    RegionPort,
    offload_command,
)
from tools.linkemu.errors import EmulatorError, ShapeError
from tools.linkemu.lab import Lab
from tools.linkemu.shape import BurstLoss, CrossTraffic, LinkShape, Policer, format_link, parse_link
from tools.linkemu.stats import EmulatorStats, Lateness, PairStats, PortStats

__all__ = [
    "GATEWAY_ADDRESS",
    "GATEWAY_MAC",
    "BurstLoss",
    "Controller",
    "CrossTraffic",
    "Emulator",
    "EmulatorError",
    "EmulatorOptions",
    "EmulatorStats",
    "Lab",
    "Lateness",
    "LinkShape",
    "PairStats",
    "Policer",
    "PortStats",
    "RegionPort",
    "ShapeError",
    "format_link",
    "offload_command",
    "parse_link",
]
