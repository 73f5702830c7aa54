"""The GPU worker (experimental, `gpuAccess: CudaIpc`): the library's code in a process of its own.

It opens handles that the user's process exports, and publishes or follows for it over the local protocol. Needs torch,
triton and numpy; knows nothing of the network, of plans or of Kubernetes.

    tensors    an owner's tensors, opened, asked about before every use
    guard      no list is written before the owner has confirmed its tensors
    owner      one owner's connection and session
    server     the socket that owners dial
    __main__   the program
"""
