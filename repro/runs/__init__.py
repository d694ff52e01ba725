"""The run loop: plans rows, runs them through an engine into a bundle, resumes, shows progress."""
