"""layouts: rows stand where they are described, on both ways, in caches of vLLM's own backend.

Direct and the writer's way give the same cache bytes in float32, bfloat16 and float16, blocks of 32
and 128; a wrong entry of the table is refused by the pattern; prompts that part at every offset of
a block load right; caches narrower than rows (fp8 where the processor has AVX-512) get their bytes
back. No engine is needed: the tests are tests/test_rows.py.
"""
import os
import subprocess

from . import engines


def main(_args):
    done = subprocess.run(
        [os.path.join(engines.ENV, "bin", "python"),
         os.path.join(engines.HERE, "tests", "test_rows.py"), "-v"],
        env={**os.environ, "SPEC_CONNECTOR_LIBRARY": engines.LIBRARY, "OMP_NUM_THREADS": "1",
             "VLLM_LOGGING_LEVEL": "ERROR"}, check=False)
    return engines.verdict("layouts", done.returncode == 0)
