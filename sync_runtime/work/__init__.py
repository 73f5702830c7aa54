"""Work leases (PROTOCOL.md, section 11): prompt groups handed to workers, results counted once.

    model     groups, leases, results, and the changes that a ledger is made of; values only
    ledger    what is queued, leased and done, and which result counts; pure
    workers   who is there, how fast, and who gets the next group; pure
    state     a ledger as the document of a user's checkpoint; pure
    records   changes as bytes and back; pure
    store     the journal of changes in the spool

Knows neither connections nor weights.
"""
