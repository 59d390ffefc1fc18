"""Room: cluster. Links to the other nodes, and who of them lives. What is said over them is the subjects'."""
