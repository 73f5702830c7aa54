"""Measuring links with the payloads that go over them anyway.

    tcp_info   what the kernel says of one stream, parsed with its length checked
    meter      LinkMeter: acknowledgements and streams in, samples for `tuning` and link reports out
    memory     what was learned of links, in a file across restarts

Decides nothing: that is `sync_runtime.tuning`. Opens no connection: that is `sync_runtime.transport`.
"""
