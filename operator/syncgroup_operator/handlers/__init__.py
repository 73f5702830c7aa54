"""Where kopf lives: it watches SyncGroups and SyncClusters, logs in, answers probes and ends the process in order.

run         the process: settings, engine, kopf, metrics
triggers    watch events become wake-ups, nothing else
probes      what proves that the operator is alive and ready
metrics     the engine's figures for Prometheus
"""
