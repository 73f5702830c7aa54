"""Where the sidecar's stages meet: spool, transport, coding, local protocol."""
