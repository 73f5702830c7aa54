"""A member's sign of life: one lease, renewed with a report.

`documents` says what a lease holds, `file` and `lease` put it somewhere (a file; a Kubernetes Lease), `keeper` renews
it for as long as the sidecar runs. Nothing else in the runtime waits for a renewal: a member whose API server is away
goes on, and says so when it is back.
"""
