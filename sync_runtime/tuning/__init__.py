"""Decisions about links: how many streams, which bucket size, whether `tight` pays, when to abandon a transfer.

    samples      what was measured of one payload, or of a window inside one
    model        formulas: what one stream can carry, how many fill a link, pacing
    estimates    figures that samples add up to: rate, capacity, round-trip time, loss
    trial        one paired comparison of two stream counts
    search       the smallest count of streams that carries what the link can
    state        what a link remembers across restarts
    controller   LinkController: samples in, decisions with their reasons out
    buckets      bucket size from payload, rate and streams
    codec        whether `tight` pays on a link
    supersede    whether a running transfer gives way to a newer one

Pure: no clock, no randomness, no input or output; `now_s` is an argument. May import the contract alone.
"""
