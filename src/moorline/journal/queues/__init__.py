"""Room: journal/queues. The files of queues: one log for all, an index, and a folder for each."""
