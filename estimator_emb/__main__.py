"""Makes `python -m estimator_emb` the same as the command `estimator-emb`."""

import sys

from estimator_emb.cli import main

if __name__ == "__main__":
    sys.exit(main.main())
