"""Results as pictures and pages: gathered by pure functions, then drawn."""
