"""What operator and runtime agree on: names, custom resources, plan and reports.

Light and pure: standard library and pydantic only, no clock, no I/O, no Kubernetes client, no torch. Import the
modules by name (`sync_runtime.contract.names` needs not even pydantic):

    names        every name that both sides must spell alike
    errors       what can be wrong with a document, as sentences
    rules        one declaration for a CEL rule and its Python twin
    base         the strict model that everything below derives from
    patterns     the shapes of text, each with its words
    fields       field types: labels, ports, bytes, times, lists, opaque objects
    syncgroup    SyncGroup: trainer, rollout, sync, policies and runtime are its parts
    synccluster  SyncCluster
    status       what the operator writes back on both
    strict_json  JSON with exactly one reading
    wire         strict JSON in and out, with format versions and size limits
    plan         what members of one cluster and region do
    reports      what members tell the operator
    documents    from a parsed YAML or JSON document to a model, or to problems
"""
