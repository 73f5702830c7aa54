"""Who may join a group: its certificate authority, and the requests that members' pods make of it.

authority   the CA in its hub Secret: made, read back, replaced with overlap
approval    what is signed, denied, waited with or left alone, and what is cleared away

Decides and signs; sends nothing and reads no clock: `now` is an argument, and `execute` talks to API servers.
"""
