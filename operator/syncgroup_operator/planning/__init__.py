"""Decisions about a SyncGroup, all of them pure: no clock, no randomness, no input or output.

observation   what one pass sees
state         what the operator remembers of a group, on one hub object
decision      what one pass decides
leases        who is alive, judged by the observer's own clock
seats         which members exist, where, and who is replaced when
routes        who dials whom
links         codec, streams and bucket size per link, with memory
plans         the plan documents, their term and revision
decide        all of the above in one function
diff          wanted objects against seen ones: what to apply and delete
status        conditions and figures for the user
"""
