"""A checkpoint folder that follows a lineage, for readers that only know `from_pretrained`.

    copies   one private copy of a checkpoint, brought forward in place; a note says which version it is
    folder   two copies in turns behind one symbolic link: readers see whole versions, the next is made beside them

Knows no network and no session: deltas are handed in.
"""
