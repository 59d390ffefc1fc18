"""Spark finds this package by its name, and with it the data source `moorline`: nothing to register."""

from moorline.spark.source import MoorlineSource as DefaultSource

__all__ = ["DefaultSource"]
