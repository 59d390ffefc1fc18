"""Room: core/group. Groups: the Leader, its Borrowers, and what they say to each other."""
