"""``python hack/cluster COMMAND``."""

import sys

from hack.cluster._cli import main

if __name__ == "__main__":
    sys.exit(main())
