"""Room: cli. The command line `moor`, one file per noun."""
