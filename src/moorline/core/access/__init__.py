"""Room: core/access. Who may do what, how much of it, when it is its turn, and what is written down."""
