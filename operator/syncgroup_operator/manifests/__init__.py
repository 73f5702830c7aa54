"""Documents of a SyncGroup's children, all of them pure: observation and decision in, Kubernetes objects out.

parts       trainer and rollouts under one view
shapes      whether a template's parts are what Kubernetes means by them
problems    what keeps a template from becoming a pod, each with its field and remedy
conflicts   names, ports and paths of a template that are ours
inputs      what one pod is built from
sidecar     the containers that are added
injection   a template made a member's pod spec
pods        a member's pod, and the hash of what it was built from
services    how members and trainer are reached
objects     the small objects: plan, trust, claims, leases, the members' role
children    everything that should exist, in the order it should be made
roles       what the operator, its remote accounts, members and people may do

Nothing here reads a clock, a file or an API server. Templates are hostile until `problems_of` found nothing.
"""
