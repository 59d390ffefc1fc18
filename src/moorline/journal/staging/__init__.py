"""Room: journal/staging. The files of staged writes: stages, and the log of the decisions about them."""
