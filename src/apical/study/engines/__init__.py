"""Engines place jobs: the local one in processes of this machine, the cluster one with Ray."""
