"""The `thoughtbeam` command: one file per subcommand; main.py puts them together."""
