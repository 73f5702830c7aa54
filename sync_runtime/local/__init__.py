"""The protocol between the user's process and its sidecar (PROTOCOL.md, section 6): frames, messages, the shared ring.

Needs the standard library alone, so that any image can hold it. Knows neither weights nor the network: it carries bytes
whose meaning its two users agree on.

    frames     the frame header and JSON bodies, parsed from hostile bytes; no sockets
    messages   what a body may say, as frozen dataclasses
    schema     messages to frames and back, checked
    work_*     the messages of work leases, in the same way
    ranges     block numbers in messages
    faults     errors as messages, and back
    ring       shared memory with credit, in both directions
    channel    the library's end: a blocking socket
    link       the sidecar's end: one connection in asyncio
"""
