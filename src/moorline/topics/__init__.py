"""Room: topics. Topics: what is published, the streams of this node, and those of the others."""
