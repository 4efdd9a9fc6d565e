"""The model of demo and tests, and a stand-in of the model hub. Knows nothing of clusters or of the product."""

from models.smollm2 import smollm2_directory

__all__ = ["smollm2_directory"]
