"""Objects on their way: manifests, cutting into buckets, the spool. Moves bytes, never looks into blocks."""
