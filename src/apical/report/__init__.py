"""Figures and pages: numbers are gathered by pure functions, then drawn by others."""
