"""Room: spark. Kept free for the PySpark data source and its jobs."""
