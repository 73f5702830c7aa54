"""The command line of SyncGroup: `syncgroup …` and, as a kubectl plug-in, `kubectl syncgroup …`.

The only package that may import both operator and runtime; it does so lazily, one file per subcommand, so that each
needs only its own extra.
"""
