"""Measurements of bundles as records with intervals; bundles compared with each other and with published claims."""
