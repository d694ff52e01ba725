"""Folders in the published layout of the artifact study: read as they are, checked, drawn."""
