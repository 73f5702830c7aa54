"""Decisions about a SyncGroup, all of them pure: no clock, no randomness, no input or output.

observation   what one pass sees
state         what the operator remembers of a group, on one hub object
decision      what one pass decides
problems      what is wrong until somebody changes something, and what failed

clock         wall times as they are written down
leases        who is alive, judged by the observer's own clock
memory        seats as the state remembers them
sitting       the notebook of one pass over the seats
losses        which seats lost their member, and of what
placement     where a seat may be, and where its successor goes
damping       how fast members may be replaced
updates       rolling changes of a template
seats         which members exist, where, and who is replaced when
trainers      the trainer's one seat, and its term

routes        who dials whom in one place
nesting       which place dials the trainer, which another place
endpoints     where members are dialled
links         codec, streams and bucket size per link, with memory
plans         the plan documents and their revision
decide        all of the above in one function

covering      whether a seen object says what is wanted of it
diff          wanted objects against seen ones: what to apply and delete
census        who serves, who does not and why
conditions    what kstatus and people read
status        everything that the user sees
"""
