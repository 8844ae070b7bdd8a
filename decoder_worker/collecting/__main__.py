"""`python -m decoder_worker.collecting`"""

import sys

from decoder_worker.collecting.main import main

sys.exit(main())
