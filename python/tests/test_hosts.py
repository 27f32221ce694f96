#!/usr/bin/env python3
"""What the adapters of hosts share: identities of domains, and failures of calls."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from spec_connector import abi, hosts, objects_abi  # noqa: E402
from spec_connector.connector import Error, Poisoned  # noqa: E402


class Identities(unittest.TestCase):
    def folder(self, weights=b"w", config=b"{}"):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        for name, data in (("model.safetensors", weights), ("config.json", config)):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
        return folder

    def test_weights_and_the_models_configuration_count(self):
        base = hosts.weights_of(None, self.folder())
        self.assertEqual(base, hosts.weights_of(self.folder(), "any name"))
        for other in (self.folder(b"x"), self.folder(config=b'{"rope_theta": 1}')):
            self.assertNotEqual(base, hosts.weights_of(None, other))
        self.assertNotEqual(hosts.weights_of("name", "a"), hosts.weights_of("name", "b"))

    def test_a_model_without_a_folder_is_refused_with_what_to_do(self):
        with self.assertRaisesRegex(ValueError, 'give "weights" a folder, or "name"'):
            hosts.weights_of(None, "no-such-org/no-such-model")

    def test_identities_differ_in_every_fact_and_fit(self):
        base = {"model": "m", "layers": ["l0", "l1"], "tp": [0, 2]}
        seen = {hosts.identity_of("vllm", **base), hosts.identity_of("sglang", **base)}
        for name, value in (("model", "n"), ("layers", ["l0l1"]), ("tp", [1, 2])):
            seen.add(hosts.identity_of("vllm", **{**base, name: value}))
        self.assertEqual(len(seen), 5)
        self.assertEqual(json.loads(hosts.identity_of("vllm", **base))["model"], "m")
        long = [hosts.identity_of("vllm", layers=[f"model.layers.{i}.attn" for i in range(count)],
                                  extra="e" * 3000) for count in (999, 1000)]
        self.assertNotEqual(*long)
        self.assertLessEqual(max(map(len, long)), objects_abi.DOMAIN_BYTES_MAX)

    def test_settings_of_a_file_and_of_a_dict(self):
        given = {"path": "/x"}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(given, file)
            file.flush()
            self.assertEqual(hosts.settings_of(file.name), given)
        self.assertIsNot(hosts.settings_of(given), given)


class Failures(unittest.TestCase):
    def test_the_first_of_each_kind_is_logged(self):
        failures = hosts.Failures(mock.Mock())
        for call in ("get", "put"):
            for error in (Error(call, abi.E_BUSY, "x"), Error(call, abi.E_IO, "x"), Poisoned("x")):
                self.assertIsInstance(error, hosts.FAILURES)
                failures.add(call, error)
                failures.add(call, error)
        self.assertEqual(failures.logger.warning.call_count, 6)
        self.assertEqual(failures.counts["get", "SPEC_E_BUSY"], 2)

    def test_the_clients_module_imports_no_host(self):
        done = subprocess.run(
            [sys.executable, "-c", "import sys, spec_connector.lmcache, spec_connector.hosts\n"
             "print([m for m in ('lmcache', 'torch', 'numpy', 'vllm') if m in sys.modules])"],
            capture_output=True, text=True, check=True, cwd=os.path.dirname(HERE))
        self.assertEqual(done.stdout.strip(), "[]")


if __name__ == "__main__":
    unittest.main()
