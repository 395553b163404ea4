"""Adapters that run real kernels, the reference they are judged by, and the device probe.

Importing this package imports neither torch nor any kernel library; only running one does.
"""
