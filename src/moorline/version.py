"""Room: version. The one place that says it."""

__version__ = "0.2.0"

SOFTWARE = f"moorline/{__version__}"
"""How both ends call themselves in a hello."""
