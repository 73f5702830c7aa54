"""`python -m syncgroup_operator`: one replica of the operator, configured by its environment."""

from __future__ import annotations

import os
import sys

from syncgroup_operator.handlers.run import main

if __name__ == "__main__":
    sys.exit(main(os.environ))
