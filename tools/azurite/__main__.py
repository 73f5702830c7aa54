"""`python -m tools.azurite`: installs Azurite and says where it is."""

from __future__ import annotations

import sys

from tools.azurite import install
from tools.errors import ToolError, sentence_for


def main() -> int:
    """A problem a person can mend is one sentence and exit code 2."""
    try:
        sys.stdout.write(f"{install()}\n")
    except ToolError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"error: {sentence_for(error)}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
