"""The trainer's session: takes states or objects from the library and makes durable, signed versions of them.

`session` is the conversation with the library, `opening` finds where a publisher stands, `writing` carries one version
into the spool, `tight` codes it once more for slow links.
"""

from sync_runtime.session.publish.context import Snapshot, TrainerContext
from sync_runtime.session.publish.session import PublisherSession

__all__ = ["PublisherSession", "Snapshot", "TrainerContext"]
