"""Weights in the memory of a GPU: block tables that kernels read, change lists, and the bit tricks they share.

Needs torch and triton. Knows neither how differences are found (delta) nor how they are written (codec): both stand on
this. Everything also runs on the CPU under Triton's interpreter (`TRITON_INTERPRET=1`), which is how CI checks it.
"""
