"""The parent's side of a sidecar: which object goes to which child (`distributor`), and the decisions it stands on."""

from sync_runtime.session.relay.distributor import Distributor
from sync_runtime.session.shelf import ChildView, Shelved, Supply, place

__all__ = ["ChildView", "Distributor", "Shelved", "Supply", "place"]
