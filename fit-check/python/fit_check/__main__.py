"""``python -m fit_check`` is the program ``fit-check``."""

import subprocess
import sys

from .program import find_program

try:
    sys.exit(subprocess.run([find_program(), *sys.argv[1:]], check=False).returncode)
except KeyboardInterrupt:
    sys.exit(130)  # 128 plus the number of SIGINT, as a shell says it
