"""Exit codes."""

OK = 0
FAILED = 1  # the service, or something that was started, failed
USAGE = 2  # the arguments or the request are wrong; also argparse's own code
NO_ANSWER = 3  # the search ended, and no finished trace gave an answer
UNREACHABLE = 4  # nothing answers at the endpoint
INTERRUPTED = 130  # Ctrl-C

SUMMARY = (
    "exit codes: 0 done; 1 the service failed; 2 wrong arguments or a wrong request; 3 the search ended "
    "without an answer; 4 nothing answers at the endpoint; 130 interrupted"
)
