"""The subcommands, one file each; `syncgroup.cli` lists them and imports the one that is asked for."""
