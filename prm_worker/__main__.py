"""`python -m prm_worker`"""

import sys

from prm_worker.main import main
from thoughtbeam.runtime.parent_watch import die_with_starter

if __name__ == "__main__":
    sys.exit(main())
elif __name__ == "__mp_main__":
    # a process of an engine, in which Python runs this module before anything else
    die_with_starter()
