"""Room: resolver. Kept free for the resolver: paths to publishers."""
