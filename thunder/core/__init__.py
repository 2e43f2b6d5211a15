"""Names of Lightning Thunder's `thunder.core` that mean the same here. See docs/migration.md."""
