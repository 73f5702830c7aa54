"""Objects on their way: manifests now, packing and spooling later. Moves bytes, never looks into blocks."""
