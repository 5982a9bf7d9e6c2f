"""Retries with exponential backoff: one pure function for the core, one set of helpers for I/O."""
