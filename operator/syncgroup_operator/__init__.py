"""The operator of SyncGroup: reconciles SyncGroups across clusters.

Importing this package imports nothing else. It meets the runtime only in `sync_runtime.contract`,
`sync_runtime.tuning` and `sync_runtime.identity`.
"""
