"""Builds Kubernetes and what stands beside it from source, with versions from `tools.toml` alone."""
