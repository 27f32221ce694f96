"""What the adapters of hosts (vllm_tier, sglang, lmcache) share: identities and failures.

Keys of these hosts name the model at most, so a change of its weights or of the layout would find
values of the old ones. A domain's identity adds both (vLLM issue 49261, SGLang issue 26792).

Does not: import a host. Tests: tests/test_hosts.py
"""
import hashlib
import json
import logging
import os

from . import identity
from .connector import Error, Poisoned
from .objects_abi import DOMAIN_BYTES_MAX

FORMAT = 1  # of what the adapters store; another number finds nothing of this one
BY_NAME = "name"
FAILURES = (Error, Poisoned, ValueError)  # of a call while the host runs: a miss, not an exception


def folder_of(model, revision=None):
    """The local folder of a model: a path, or a name in the cache of huggingface_hub."""
    if os.path.isdir(model):
        return model
    try:
        from huggingface_hub import snapshot_download
        return snapshot_download(model, revision=revision, local_files_only=True)
    except Exception as error:  # the library has many; all mean that there is no such folder
        raise ValueError(f"no local folder has the weights of {model!r} ({error}): give \"weights\""
                         f" a folder, or \"{BY_NAME}\" to rely on the model's name") from error


def weights_of(weights, model, full=False, revision=None):
    """Text that differs where weights differ. weights: a folder; BY_NAME: the name alone; None: the
    folder of the model."""
    if weights == BY_NAME:
        return f"name {model}"
    folder = weights or folder_of(model, revision)
    config = os.path.join(folder, "config.json")
    facts = {}
    if os.path.exists(config):
        with open(config, "rb") as file:
            facts["config"] = file.read()
    return identity.weights_id(folder, facts, full).hex()


def identity_of(host, **facts):
    """Bytes for Objects.domain: JSON, of which long values are replaced by their SHA-256."""
    facts = {"host": host, "format": FORMAT, **facts}

    def text(limit):
        short = {name: value if len(json.dumps(value)) <= limit else
                 hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
                 for name, value in facts.items()}
        return json.dumps(short, sort_keys=True, separators=(",", ":")).encode()

    whole = text(DOMAIN_BYTES_MAX)
    return whole if len(whole) <= DOMAIN_BYTES_MAX else text(80)


def settings_of(config):
    """The configuration of the store as a dict; config: a dict, or a path of a JSON file."""
    if isinstance(config, dict):
        return dict(config)
    with open(config, encoding="utf-8") as file:
        return json.load(file)


class Failures:
    """Counts calls that failed, and logs the first of each kind."""

    def __init__(self, logger=logging.getLogger("spec_connector")):
        self.logger, self.counts = logger, {}

    def log_line(self, level, form, *words):
        """For lines of the library: Objects(log=...)."""
        self.logger.log(level, "spec_connector: " + form, *words)

    def add(self, call, error):
        kind = call, getattr(error, "name", type(error).__name__)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.counts[kind] == 1:
            self.logger.warning("spec_connector: %s failed, which the host sees as a miss; further "
                                "ones are not logged: %s", call, error)
