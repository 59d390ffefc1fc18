"""Room: client. Publishers and subscribers of live values: docs/design/resolver.md."""
