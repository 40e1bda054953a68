"""The version, where every layer may read it: importing the package itself would look upwards."""

__version__ = "0.1.0"
