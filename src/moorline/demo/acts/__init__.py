"""One file an act; `run.py` plays them in order."""
