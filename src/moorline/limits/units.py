"""The units of the others."""

KIB = 1024
MIB = 1024 * KIB
"""Units of the others."""
