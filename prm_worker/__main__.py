"""`python -m prm_worker`"""

import sys

from prm_worker.main import main

sys.exit(main())
