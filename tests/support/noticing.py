"""How tests judge that a death is noticed at once, on a machine that may be busy with other things.

Whoever talks to a process over a socket hears of its death by the end of the file, at once. A bound of a second would
measure the machine. What can be told for certain is which way the news came: the words of the error are those of an end
of file, and they came long before the first timer that could have found the death instead.
"""

from __future__ import annotations

FIRST_TIMER_S = 30.0
"""The shortest silence that counts as a death: an owner gives its GPU worker so long, and all others have longer."""
AT_ONCE_S = 20.0
END_OF_FILE = r"closed (its|the) connection|Connection reset|Broken pipe"
"""What errors say where the other end's socket ended."""
