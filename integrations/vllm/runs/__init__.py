"""Tests of the connector in real vLLM engines: a module each, with a main(args) that says whether
everything holds. `integrations/vllm/run NAME` starts one; engines.py has what they share."""
