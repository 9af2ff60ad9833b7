"""Predictions held against what others and we measured, each with its error.

`collectives()` gives every measured collective beside the network model's time.
"""

from roofline_helpers.published.exchanges import LARGE, collectives, reason

__all__ = ["collectives", "reason", "LARGE"]
