"""Room: spark. The jobs of `moor pipeline`."""
