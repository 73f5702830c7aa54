"""Objects between members: frames, messages, a link's queue, and the sockets they travel on (PROTOCOL.md, section 3).

Moves buckets and never looks into them: what is in an object, when a version exists and who should have it is the
session's business. Threads and blocking sockets, no event loop; what happens is told through one callback (`events`).
"""
