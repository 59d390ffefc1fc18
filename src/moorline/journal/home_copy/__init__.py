"""Room: journal/home_copy. The files of a home, copied while they are written to, and proven."""
