"""CustomResourceDefinitions from the contract: `python -m syncgroup_operator.crdgen --output crds`.

`schema` turns a model into a structural schema, `definitions` wraps it with names, columns and subresources, `writing`
puts the files on disk and compares them. Knows the contract and nothing of kopf, clusters or clients.
"""
