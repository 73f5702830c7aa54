"""What can go wrong on the command line.

CommandError          ends the program with one sentence and exit code 2: the input is wrong, a retry cannot help
"""

from __future__ import annotations

BAD_INPUT_EXIT_CODE = 2


class CommandError(Exception):
    """The user's input is wrong; the message is a sentence that says what to do."""
