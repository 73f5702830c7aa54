"""The API servers: one client per cluster, the watches on it, and what is seen through them.

kinds         the kinds that the operator touches, and their paths
access        from a kubeconfig, hostile until checked, or a pod's own token, to a client configuration
limits        how fast and how much at once
failures      every wrong answer as one of the operator's errors
connection    one request or one stream, limited and counted
client        `Cluster`: get, list, apply, replace, patch, delete
events        Events for users, repeated ones as a series
watch         list and watch of one kind, for ever
troubles      the worst thing that a pod says about itself
views         bodies to the values that decisions rest on
cache         what all watches of one cluster see, by group

The only package of the operator that knows a Kubernetes client. It decides nothing about groups.
"""
