"""Where the operator acts: observe, plan, write, one group at a time, each cluster by itself.

queue       which groups are due: deduplicated, one pass per group at a time, back-off
leader      which replica acts
record      the group's state on the hub, by compare-and-swap
clusters    connections to all clusters, and what keeps one from being used
observe     from caches to one observation
act         perform actions, bounded, each failure by itself
reconcile   one pass
signing     members' certificates
collector   what vanished groups left behind
"""
