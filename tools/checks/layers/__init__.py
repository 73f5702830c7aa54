"""Contract types for import-linter that hold for modules not written yet; importlinter.toml holds the contracts."""
