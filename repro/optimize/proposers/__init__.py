"""Where candidates come from. A run may mix proposers."""
