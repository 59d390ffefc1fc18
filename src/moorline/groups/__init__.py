"""Room: groups. Groups that share the work of reading: Leaders of this node, and what operators ask of
them."""
