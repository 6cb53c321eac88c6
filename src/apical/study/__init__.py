"""Studies: a table or figure of the paper, or your own comparison, from its file to its results."""
