"""Benchmarks: each file starts its own servers and peers, and speaks JSON with `--json`."""
