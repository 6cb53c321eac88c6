"""One module for each data set: how its files are found, verified, decoded and split."""
