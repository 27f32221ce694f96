#!/usr/bin/env python3
"""test_deploy.py SPEC_CTL MINIMAL_HOST PLUGIN: the examples in deploy/ are well formed, and name
only what exists.

The dashboard and the README name exactly the metrics that spec-ctl prints; systemd-analyze accepts
the units; YAML and the JSON in it parse.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CTL, HOST, PLUGIN = "", "", ""
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
DEPLOY = os.path.join(ROOT, "deploy")
LABELS = {"instance", "store", "rank"}


def skip(reason):
    print("skipped: " + reason)
    raise unittest.SkipTest(reason)


def read(*path):
    with open(os.path.join(DEPLOY, *path), encoding="utf-8") as file:
        return file.read()


def printed_metrics():
    """{name: type} of what spec-ctl prints of a store."""
    with tempfile.TemporaryDirectory() as root:
        store = os.path.join(root, "store")
        subprocess.run([HOST, PLUGIN, json.dumps({"path": store, "disk_bytes": "64MiB"})],
                       check=True, capture_output=True)
        text = subprocess.run([CTL, "stat", "--format", "prometheus", store], check=True,
                              capture_output=True, text=True).stdout
    return dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))


def expressions(node):
    """All queries of a dashboard: of panels and of variables."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("expr", "query", "definition") and isinstance(value, str):
                yield value
            yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


class Deploy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.metrics = printed_metrics()

    def test_the_dashboard_names_printed_metrics_and_labels(self):
        dashboard = json.loads(read("grafana", "spec_connector.json"))
        queries = list(expressions(dashboard))
        self.assertGreater(len(queries), 15)
        named = set(re.findall(r"spec_connector_\w+", " ".join(queries)))
        self.assertEqual(named - set(self.metrics), set())
        self.assertGreater(len(named), 12)
        for query in queries:
            for selector in re.findall(r"spec_connector_\w+\{([^}]*)\}", query):
                self.assertLessEqual(set(re.findall(r"(\w+)=~?\"", selector)), LABELS, query)
            for counter in re.findall(r"rate\((spec_connector_\w+)", query):
                self.assertEqual(self.metrics[counter], "counter", query)
        panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
        self.assertTrue(all(panel["description"] and panel["targets"] for panel in panels))
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))

    def test_the_readme_lists_every_metric(self):
        rows = [line.split("|")[1] for line in read("README.md").splitlines()
                if line.startswith("| `") and "." not in line.split("|")[1]]
        listed = {"spec_connector_" + name for row in rows for name in re.findall(r"`(\w+)`", row)}
        self.assertEqual(listed, set(self.metrics))

    def test_every_file_is_in_the_readme(self):
        text = read("README.md")
        for path in glob.glob(DEPLOY + "/*/*"):
            name = os.path.relpath(path, DEPLOY)
            self.assertTrue(name in text or name.endswith(".timer"), name)

    def test_systemd_accepts_the_units(self):
        if not shutil.which("systemd-analyze"):
            skip("systemd-analyze is absent")
        with tempfile.TemporaryDirectory() as root:
            for path in glob.glob(DEPLOY + "/systemd/*"):
                with open(path, encoding="utf-8") as file:
                    unit = file.read().replace("/usr/local/bin/spec-ctl", CTL)
                name = os.path.basename(path).replace("@.", "@var-cache-spec.")
                with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                    file.write(re.sub(r"^Documentation=.*\n", "", unit, flags=re.M))
            units = sorted(glob.glob(root + "/*"))
            self.assertEqual(len(units), 2)
            done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True,
                                  text=True, check=False)
            said = [line for line in done.stderr.splitlines() if "spec-connector" in line]
            self.assertEqual((done.returncode, said), (0, []), done.stderr)

    def test_the_service_writes_a_file_that_the_collector_reads(self):
        line = re.search(r"^ExecStart=(.*)$",
                         read("systemd", "spec-connector-metrics@.service"), re.M).group(1)
        words = line.split()
        self.assertEqual((words[0], words[-1]), ("/usr/local/bin/spec-ctl", "%f"))
        self.assertRegex(words[-2], r"^/var/lib/prometheus/node-exporter/spec_connector-%i\.prom$")
        with tempfile.TemporaryDirectory() as root:
            store, out = os.path.join(root, "store"), os.path.join(root, "x.prom")
            subprocess.run([HOST, PLUGIN, json.dumps({"path": store, "disk_bytes": "64MiB"})],
                           check=True, capture_output=True)
            subprocess.run([CTL, *words[1:-2], out, store], check=True)
            self.assertGreater(os.path.getsize(out), 1000)

    def test_kubernetes_manifests_are_yaml_with_json_arguments(self):
        try:
            import yaml
        except ImportError:
            skip("PyYAML is absent")
        for path in glob.glob(DEPLOY + "/kubernetes/*.yaml"):
            with open(path, encoding="utf-8") as file:
                for manifest in yaml.safe_load_all(file):
                    self.check_manifest(path, manifest)

    def check_manifest(self, path, manifest):
        pod = manifest["spec"]["template"]
        self.assertEqual(manifest["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"])
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        texts = []
        for container in pod["spec"]["containers"]:
            self.assertLessEqual({m["name"] for m in container["volumeMounts"]}, volumes, path)
            texts += [word.split("=", 1)[1] for word in container.get("args", []) if "={" in word]
        self.assertEqual(len(texts), 1, path)
        self.check_module(path, json.loads(texts[0]))

    def check_module(self, path, config):
        """The module that a host is told to import, if the Python package of the tree has it."""
        tiers = config.get("kv_connector_extra_config", {}).get("secondary_tiers", [config])
        for tier in tiers:
            file = tier["module_path"].replace(".", "/")
            found = [name for folder in ("python", "integrations/vllm")
                     for name in glob.glob(os.path.join(ROOT, folder, file + "*"))
                     if name.endswith(".py") or os.path.isdir(name)]
            for name in found:
                name = os.path.join(name, "__init__.py") if os.path.isdir(name) else name
                with open(name, encoding="utf-8") as source:
                    self.assertIn(tier.get("class_name", tier["type"]), source.read(), path)


if __name__ == "__main__":
    PLUGIN, HOST, CTL = sys.argv.pop(), sys.argv.pop(), sys.argv.pop()
    unittest.main()
