"""The sidecar's HTTP API: probes, figures, drain and reload."""
