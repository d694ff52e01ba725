"""The agents that write solutions, and the study that compares them."""
