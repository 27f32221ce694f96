"""tier: how fast vLLM's tiering manager stores and loads chunks through spec_connector.vllm_tier
and through vLLM's own fs tier, on the same bytes, in turn (integrations/hosts/load.py). No engine
and no GPU. --on: a folder on the disk to be measured; --rounds: of both in turn."""
import os
import subprocess

from . import engines

CODE = """import sys
sys.path.insert(0, sys.argv[1])
from tier_driver import Driver
import load
sys.exit(load.main(Driver, "vllm", "fs tier, O_DIRECT", sys.argv[2:]))"""


def main(args):
    rounds = args.rounds or (3 if args.quick else None)
    words = ["--rounds", str(rounds)] if rounds else []
    words += ["--on", args.on] if args.on else []
    done = subprocess.run([os.path.join(engines.ENV, "bin", "python"), "-W", "ignore", "-c", CODE,
                           engines.HERE, *words],
                          env={**os.environ, "SPEC_CONNECTOR_LIBRARY": engines.LIBRARY},
                          check=False)
    return done.returncode == 0
