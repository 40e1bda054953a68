# Makes this folder importable for cimport; there is no Python package here.
