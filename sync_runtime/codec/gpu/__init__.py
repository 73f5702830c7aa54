"""The coder on the GPU: change lists to bodies and back, byte for byte what `codec.cpu` writes (FORMAT.md).

Needs torch, triton and numpy; knows nothing of how changes are found or applied. Its reference is `codec.cpu`.
"""
