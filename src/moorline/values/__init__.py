"""Room: values. Kept free for publishers and subscribers of live values."""
