"""Room: core/access. Who is who, and what rows of grants say of it."""
