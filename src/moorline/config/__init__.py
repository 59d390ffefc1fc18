"""Room: config. What an operator may set, where it may be set, and what is refused and why.

Everything is imported from its own module: a client, and every process of Spark, needs only `addresses`,
and the settings of a node are ten times as much.
"""
