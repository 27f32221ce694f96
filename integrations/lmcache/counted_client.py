"""spec_connector.lmcache's client, which also writes the store's counts to the file in
SPEC_TEST_COUNTS (JSON), so that tests of a server in another process can read them."""
import json
import os

from spec_connector.lmcache import Client


class CountedClient(Client):
    def drain_completions(self):
        done = super().drain_completions()
        path = os.environ["SPEC_TEST_COUNTS"]
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(self._store.stats(), file)
        os.replace(f"{path}.new", path)
        return done
