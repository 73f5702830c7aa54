"""What runs in the user's process: Publisher in a trainer, Subscriber in a rollout worker.

Needs the standard library, numpy and torch; triton besides where weights are on a GPU. Makes no network connection and
no spans: bytes and timings go to the sidecar through the local protocol (`sync_runtime.local`).

    publisher, subscriber   what users call
    work, worker            prompt groups and results, at both ends
    weights                 a model's tensors under a layout
    engines                 where those tensors come from, found by name
    connection              the sidecar: dialled, watched and dialled again by one background thread
    streams, folding        copies of states, lists of new bits (coder `sidecar`)
    device_*                extraction, coding and apply on the GPU (coder `library`)
"""
