"""spec_connector.lmcache's client, which also writes the store's counts to the file in
SPEC_TEST_COUNTS (JSON), so that tests of a server in another process can read them. If a file with
that name and .kill exists, the process ends in its next put, by SIGKILL."""
import json
import os
import signal
import threading
import time

from spec_connector.lmcache import Client

WRITE_SECONDS = 0.1


class CountedClient(Client):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._path = os.environ["SPEC_TEST_COUNTS"]
        threading.Thread(target=self._write, daemon=True).start()

    def _write(self):
        """Servers of tests are killed: nothing closes the store beside this."""
        while True:
            with open(f"{self._path}.new", "w", encoding="utf-8") as file:
                json.dump(self._store.stats(), file)
            os.replace(f"{self._path}.new", self._path)
            time.sleep(WRITE_SECONDS)

    def submit_batch_set(self, keys, views):
        number = super().submit_batch_set(keys, views)
        if os.path.exists(f"{self._path}.kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        return number
