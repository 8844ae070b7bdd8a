"""`python -m prm_worker`"""

import sys

from prm_worker.main import main

# not in a process that its engine spawns
if __name__ == "__main__":
    sys.exit(main())
