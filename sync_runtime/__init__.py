"""The GPU runtime of SyncGroup: what runs beside and inside trainers and rollout workers.

Importing this package imports nothing else: each part (contract, tuning, identity, library, sidecar …) has its own
dependencies and is imported by name.
"""
