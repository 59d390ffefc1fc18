"""The demo: every part of Moorline, shown at work in under two minutes."""
