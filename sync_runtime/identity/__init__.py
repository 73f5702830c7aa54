"""Who is who: names inside certificates, keys, the group's CA, TLS between members, signatures on manifests.

PROTOCOL.md, section 2. Operator, sidecar and command line use the same code. Needs the standard library, cryptography
and pydantic; knows nothing of Kubernetes, of plans, of what members send each other, and reads no clock: `now` is an
argument.
"""
