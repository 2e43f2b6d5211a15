"""`python -m thunder`."""

import sys

from thunder.cli.main import main

sys.exit(main())
