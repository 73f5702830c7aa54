"""The CPU coder: numpy and numba, parallel over blocks. Byte for byte the same as the GPU coder. Imports no torch."""
