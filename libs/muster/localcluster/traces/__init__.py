"""Spans kept in a file: a small OTLP receiver writes them, `muster trace` reads them back."""
