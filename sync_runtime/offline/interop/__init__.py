"""Deltas as other tools write them: read into `.sgd` files and written from them, bit for bit.

    formats      `registry` knows them by name; `trl`, `pulsept1`, `grail`, `hfdelta`, `skyrl`, `dense` one each
    beneath      `container`, `zstd`, `positions`, `packed`, `checksums`, `documents`: bytes from elsewhere, all hostile
    above        `convert`: a foreign delta and a base become a delta, a delta and a base a foreign one

Most of these formats do not say which state they start from, so a base checkpoint is always asked for; whatever
checksums they have are verified. Imports no torch, makes no connection.
"""
