"""A detector that never answers, and says when it is asked."""

import sys
import threading

from replay.api import Detector


class Stuck(Detector):
    """Waits for ever at the first alert."""

    def observe(self, alert):
        sys.stdout.write("stuck\n")
        sys.stdout.flush()
        threading.Event().wait()
