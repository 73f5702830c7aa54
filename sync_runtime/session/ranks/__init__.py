"""Several ranks of one trainer or engine, seen by the session as one library (PROTOCOL.md, section 6, Ranks).

parts        who has which blocks, what their digests add up to; pure
joining      objects of ranks, record by record, as one object
link         the ranks together, as a library
door         lets ranks in, and parts with all of them when one is lost
publishing   a trainer's ranks: OPEN, PUBLISH, BLOCKS
rounds       one PUBLISH of all ranks
counting     what all ranks counted for the tables of a tight object
subscribing  an engine's ranks: OPEN, STAGE, ACTIVATE, SCRUB
"""
