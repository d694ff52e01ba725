"""Who writes solutions, and the study that compares them."""
