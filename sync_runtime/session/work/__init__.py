"""Work leases in both sidecars: the desk of a trainer's, and the sessions of workers' (PROTOCOL.md, section 11)."""
