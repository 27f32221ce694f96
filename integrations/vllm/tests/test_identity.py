#!/usr/bin/env python3
"""What requests' KV depends on, by vLLM's own requests and scheduler, without an engine. Needs vLLM
(integrations/vllm/setup-test)."""
import copy
import os
import sys
import tempfile
import unittest
from types import SimpleNamespace
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path[:0] = [HERE, os.path.join(ROOT, "python")]
try:
    import torch
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm.renderers.base import BaseRenderer
    from vllm.v1.core.sched.scheduler import Scheduler as TheirScheduler
    from vllm.v1.kv_cache_interface import SlidingWindowSpec
    from vllm.v1.request import Request, StreamingUpdate
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
from spec_connector.requests import InputError  # noqa: E402
from spec_connector.vllm import scheduler, served  # noqa: E402
from test_isolation import cache_config, engine_config  # noqa: E402


def request_of(tokens=(1, 2, 3), words=None, **more):
    params = SamplingParams(max_tokens=4, extra_args={"kv_transfer_params": words})
    return Request("r", list(tokens), params, None, **more)


class Adapters(unittest.TestCase):
    """A LoRA adapter's folder, whose files are changed."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.write("adapter_config.json", b'{"r": 8, "lora_alpha": 16}')
        self.write("adapter_model.safetensors", bytes(4096))

    def write(self, name, data):
        with open(os.path.join(self.folder.name, name), "wb") as file:
            file.write(data)

    def identity(self, name="one", number=1, path=None, adapters=None):
        """adapters: of a scheduler that saw others before."""
        lora = LoRARequest(name, number, path or self.folder.name)
        return served.identity_of(request_of(lora_request=lora), adapters or served.Adapters())

    def test_adapters_that_differ_in_anything_are_others(self):
        seen = [self.identity(), served.identity_of(request_of(), None), self.identity("two"),
                self.identity(number=2)]
        self.assertEqual(self.identity(), seen[0])
        self.write("adapter_model.safetensors", bytes(4095) + b"x")
        seen.append(self.identity())
        self.write("adapter_config.json", b'{"r": 8, "lora_alpha": 32}')
        seen.append(self.identity())
        self.assertEqual(len(set(seen)), 6)

    def test_an_adapter_whose_files_are_not_here_is_not_served(self):
        self.assertRaises(InputError, self.identity, path="someone/on-a-hub")
        os.remove(os.path.join(self.folder.name, "adapter_model.safetensors"))
        self.assertRaises(InputError, self.identity)


    def test_an_adapter_that_changes_under_an_engine_is_left_alone(self):
        """The engine may still compute with what it read before."""
        adapters = served.Adapters()
        first = self.identity(adapters=adapters)
        with mock.patch.object(served, "adapter_id", side_effect=AssertionError("read again")):
            self.assertEqual(self.identity(adapters=adapters), first)
        self.write("adapter_model.safetensors", bytes(4095) + b"x")
        self.assertRaises(InputError, self.identity, adapters=adapters)
        self.write("adapter_model.safetensors", bytes(4096))  # as it was, to look at
        self.assertRaises(InputError, self.identity, adapters=adapters)
        self.assertEqual(self.identity(), first)

    def test_an_adapter_that_changes_before_the_engine_reads_it_names_no_rows(self):
        """A request is asked for when it waits; its worker reads the files when it runs."""
        ours = object.__new__(scheduler.Scheduler)
        ours.tracked, ours.saves, ours.block = {}, [], 1
        ours.adapters, ours.counts_media = served.Adapters(), False
        request = request_of(lora_request=LoRARequest("one", 1, self.folder.name))
        tracked = ours.track(request)
        tracked.blocks = [4, 5, 6]
        ours.save(tracked, 1)
        self.assertEqual(len(ours.saves), 1)
        self.write("adapter_model.safetensors", bytes(4095) + b"x")
        ours.save(tracked, 2)
        self.assertEqual(len(ours.saves), 1)
        self.assertEqual(ours.ask(tracked, request, 0), (0, "disabled"))


class Requests(unittest.TestCase):
    def test_salts_part(self):
        salts = [None, "a", "b", "\ud800", "\udc00"]
        found = [served.identity_of(request_of(cache_salt=salt), None) for salt in salts]
        self.assertEqual(len(set(found)), len(salts))

    def test_a_clients_words_are_taken_or_ignored(self):
        for words in (None, {}, {"spec": None}, {"spec": 1}, {"spec": "load"}, {"spec": ["load"]},
                      {"spec": {}}):
            self.assertTrue(served.asked(request_of(words=words), "load"), words)
        self.assertFalse(served.asked(request_of(words={"spec": {"load": False}}), "load"))

    def test_a_session_is_served_when_its_tokens_stay(self):
        """vLLM takes the last sampled token of a session back when the next input comes."""
        ours = object.__new__(scheduler.Scheduler)
        ours.tracked, ours.adapters, ours.counts_media = {}, served.Adapters(), False
        request = request_of(resumable=True)
        self.assertIsNone(ours.track(request))
        for token in (7, 8):
            request.append_output_token_ids(token)
        request.num_computed_tokens = 4
        theirs = mock.Mock(spec=TheirScheduler, hash_block_size=32, log_stats=False)
        update = SimpleNamespace(mm_features=None, prompt_token_ids=[5, 6], arrival_time=0.0,
                                 sampling_params=request.sampling_params, max_tokens=4)
        self.assertLessEqual(set(vars(update)), set(StreamingUpdate.__dataclass_fields__))
        TheirScheduler._update_request_as_session(theirs, request, update)
        self.assertEqual(list(request.all_token_ids), [1, 2, 3, 7, 5, 6])
        request.resumable = False  # that was its last input
        self.assertEqual(list(ours.track(request).known()), [1, 2, 3, 7, 5, 6])

    def test_images_that_vllm_numbers_are_of_no_prompt(self):
        """The first image of each engine has one name, in a store that outlives them all."""
        items = SimpleNamespace(get_all_counts=lambda: {"image": 1})
        ours = object.__new__(scheduler.Scheduler)
        ours.adapters = served.Adapters()
        image = SimpleNamespace(identifier="renderer0-mm-1-image-0",
                                mm_position=SimpleNamespace(offset=1, length=2))
        for gib in (0, 4):
            for caching in (False, True):
                model = SimpleNamespace(
                    multimodal_config=SimpleNamespace(mm_processor_cache_gb=gib))
                config = SimpleNamespace(
                    model_config=model,
                    cache_config=SimpleNamespace(enable_prefix_caching=caching))
                theirs = SimpleNamespace(model_config=model, config=config,
                                         _validate_mm_uuids=lambda *_: None)
                names = BaseRenderer._process_mm_uuids(theirs, {}, items, {},
                                                       "renderer0-mm-1").get("image")
                is_numbered = names == [image.identifier]
                self.assertEqual(is_numbered, gib == 0 and not caching)
                ours.tracked, ours.counts_media = {}, served.counts_media(config)
                self.assertEqual(ours.track(request_of(mm_features=[image])) is None, is_numbered)
                ours.tracked = {}
                self.assertIsNotNone(ours.track(request_of()))
        config.model_config.multimodal_config = None
        self.assertFalse(served.counts_media(config))


class Engines(unittest.TestCase):
    """What the model's identity says of an engine."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.config, self.caches = engine_config(self.folder.name), cache_config()

    def weights(self):
        return served.describe(self.config, self.caches, 0).weights_id

    def test_weights_that_are_not_the_files_are_refused(self):
        self.weights()
        for name in ("dummy", "tensorizer", "modelexpress", "ipc_cache", "somebodys"):
            with mock.patch.object(self.config.load_config, "load_format", name):
                self.assertRaisesRegex(served.Refused, name, self.weights)
        with mock.patch.object(self.config, "weight_transfer_config", object()):
            self.assertRaisesRegex(served.Refused, "weight transfer", self.weights)

    def test_what_is_no_number_of_rows_or_tokens_is_refused(self):
        extra = self.config.kv_transfer_config.kv_connector_extra_config
        for name, value in (("query_rows", 0), ("query_rows", "many"), ("sharpen_tokens", None),
                            ("sharpen_tokens", -1)):
            with mock.patch.dict(extra, {name: value}):
                self.assertRaisesRegex(served.Refused, name, self.weights)

    def test_steps_that_begin_before_one_has_ended_are_refused(self):
        with mock.patch.object(self.config.scheduler_config, "async_scheduling", True):
            self.assertRaisesRegex(served.Refused, "asynchronous", self.weights)

    def test_models_of_sliding_windows_alone_are_refused(self):
        """vLLM gives their blocks to others while the request runs, and puts block 0 in their
        place: rows of it were stored under the tokens of a prefix that was found locally."""
        spec = SlidingWindowSpec(block_size=32, num_kv_heads=4, head_size=32, dtype=torch.float32,
                                 sliding_window=40)
        self.caches.kv_cache_groups[0].kv_cache_spec = spec
        self.assertRaisesRegex(served.Refused, "SlidingWindowSpec", self.weights)

    def test_loaders_and_what_makes_rows_of_images_part(self):
        seen = {self.weights()}
        with mock.patch.object(self.config.load_config, "load_format", "pt"):
            seen.add(self.weights())
        with mock.patch.object(self.config.load_config, "model_loader_extra_config", {"a": 1}):
            seen.add(self.weights())
        outer = copy.deepcopy(self.config.model_config.hf_config)
        outer.vision_feature_layer = -1
        with mock.patch.object(self.config.model_config, "hf_config", outer):
            seen.add(self.weights())
        for kwargs in ({"max_pixels": 1}, {"max_pixels": 2}):
            media = SimpleNamespace(mm_processor_kwargs=kwargs, media_io_kwargs={})
            with mock.patch.object(self.config.model_config, "multimodal_config", media):
                seen.add(self.weights())
        self.assertEqual(len(seen), 6)


if __name__ == "__main__":
    unittest.main()
