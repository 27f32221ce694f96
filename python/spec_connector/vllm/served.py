"""Which engines are served, and what their KV and that of a request depend on: the same in the
scheduler's process and in every worker's.

Holds: what is not known is refused in one line that names it.
"""
import json
import os

from vllm.logger import init_logger

from .. import abi, identity, requests, rope
from ..connector import Connector, Identity, Model
from ..requests import InputError
from .layout import DTYPES, row_dtype

logger = init_logger("vllm.spec_connector")

CACHE_DTYPES = ("auto", "float32", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2")


class Refused(Exception):
    """Why this engine is served without the tier: one line."""


def folder_of(model_config):
    if os.path.isdir(model_config.model):
        return model_config.model
    from huggingface_hub import snapshot_download
    return snapshot_download(model_config.model, revision=model_config.revision,
                             local_files_only=True)


def check(config, kv_config):
    """The one group's spec and layer names; Refused names what is not served."""
    parallel, groups = config.parallel_config, kv_config.kv_cache_groups
    if config.model_config.is_encoder_decoder:
        raise Refused("encoder-decoder models")
    if config.model_config.use_mla:
        raise Refused("latent attention (MLA)")
    if getattr(config.model_config, "enable_sleep_mode", False):  # caches are unmapped under us
        raise Refused("sleep mode")
    if len(groups) != 1:
        raise Refused(f"{len(groups)} KV cache groups")
    if parallel.pipeline_parallel_size > 1:
        raise Refused("pipeline parallelism")
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) > 1:
            raise Refused("context parallelism")
    if config.speculative_config is not None:
        raise Refused("speculative decoding")
    if config.scheduler_config.async_scheduling:  # a load may fail when the next step has begun
        raise Refused("asynchronous scheduling")
    extra = config.kv_transfer_config.kv_connector_extra_config
    for name, least in (("query_rows", 1), ("sharpen_tokens", 0)):
        if not isinstance(extra.get(name, least), int) or extra.get(name, least) < least:
            raise Refused(f"{name} {extra[name]!r}: a whole number from {least} on is expected")
    spec = groups[0].kv_cache_spec
    # others give blocks back, or have none, while their request runs
    if type(spec).__name__ != "FullAttentionSpec":
        raise Refused(f"a cache of {type(spec).__name__}")
    if config.cache_config.cache_dtype not in CACHE_DTYPES or row_dtype(config, spec) is None:
        raise Refused(f"a cache of {config.cache_config.cache_dtype} ({spec.dtype})")
    return spec, groups[0].layer_names


ROPES = (None, "default", "linear", "llama3", "yarn", "mrope", "proportional")


def is_known_rope(turns):
    """Whether no length of the engine's takes part; parameters may come by kinds of layers."""
    nested = [t for t in turns.values() if isinstance(t, dict)]
    return all(t.get("rope_type") in ROPES for t in [turns, *nested])


# that read the weights from the model's folder, and nothing else
LOAD_FORMATS = ("auto", "hf", "safetensors", "pt", "npcache", "mistral", "fastsafetensors",
                "instanttensor", "runai_streamer", "sharded_state", "runai_streamer_sharded")


def check_weights(config):
    """Whether the files say what the engine computes with."""
    if config.load_config.load_format not in LOAD_FORMATS:
        raise Refused(f"weights that are loaded as {config.load_config.load_format}")
    if config.weight_transfer_config is not None:
        raise Refused("weights that are replaced under a running engine (weight transfer)")


def counts_media(config):
    """Whether vLLM numbers images, instead of naming them by what they are: another engine's first
    one has the same name."""
    multimodal = config.model_config.multimodal_config
    return (multimodal is not None and multimodal.mm_processor_cache_gb == 0
            and not config.cache_config.enable_prefix_caching)


def describe(config, kv_config, rank):
    spec, layers = check(config, kv_config)
    check_weights(config)
    model, parallel = config.model_config, config.parallel_config
    extra = config.kv_transfer_config.kv_connector_extra_config
    turns = getattr(model.hf_text_config, "rope_parameters", None) or {}
    media = model.multimodal_config
    facts = {"config": model.hf_text_config.to_json_string(use_diff=False),
             "whole config": model.hf_config.to_json_string(use_diff=False),
             "media": "" if media is None else (media.mm_processor_kwargs, media.media_io_kwargs),
             "loading": (config.load_config.load_format,
                         config.load_config.model_loader_extra_config),
             "dtype": model.dtype, "quantization": model.quantization,
             "revision": model.revision, "layers": ",".join(layers),
             "kv_cache_dtype": config.cache_config.cache_dtype,
             # what the length that is served decides of the rotary turn (longrope, dynamic)
             "length": "" if is_known_rope(turns) else model.max_model_len}
    return Model(
        layers=len(layers), kv_heads=spec.num_kv_heads,
        query_heads=model.get_num_attention_heads(parallel), head_size=spec.head_size,
        dtype=DTYPES[row_dtype(config, spec)], rope=rope.of(model.hf_text_config, spec.head_size),
        tp_rank=rank, tp_size=parallel.tensor_parallel_size,
        weights_id=identity.weights_id(folder_of(model), facts, extra.get("weights") == "full"))


REFINE_BYTES_MAX = 1 << 30


def is_layered(config):
    return bool(config.kv_transfer_config.kv_connector_extra_config.get("layered"))


def log_line(level, form, *words):
    logger.log(level, "spec_connector: " + form, *words)


def open_connector(config, kv_config, rank, role):
    extra = config.kv_transfer_config.kv_connector_extra_config
    if "config" not in extra:
        raise Refused('kv_connector_extra_config has no "config": a path of a JSON file')
    with open(extra["config"], encoding="utf-8") as file:
        settings = json.load(file)
    # as many requests as the engine runs, as long as it takes them; one that sharpens what it
    # loaded keeps a second one of the plugin while it stores
    each = 2 if is_layered(config) and extra.get("sharpen_tokens") else 1
    settings.setdefault("max_requests", each * config.scheduler_config.max_num_seqs + 16)
    settings.setdefault("max_request_tokens", max(8192, config.model_config.max_model_len))
    if is_layered(config):
        settings.setdefault("preset", "layered")
        # all layers of a prompt, until its last chunk has chosen; memory that is touched when used
        rows = settings["max_requests"] * len(kv_config.kv_cache_groups[0].layer_names) * (
            config.model_config.max_model_len + 256)
        settings.setdefault("layered", {}).setdefault("refine_bytes",
                                                      min(16 * rows, REFINE_BYTES_MAX))
    model = describe(config, kv_config, rank)
    said = rope.line(settings, model.rope)
    if said and rank == 0 and role != abi.ROLE_READER:  # the scheduler has one of its own
        logger.warning("spec_connector: %s", said)
    return Connector(settings, model, role=role, rank=rank,
                     rank_count=config.parallel_config.tensor_parallel_size,
                     library=extra.get("library"), log=log_line)


def adapter_id(lora):
    """Of its name, number and files."""
    facts = {"name": lora.lora_name, "number": lora.lora_int_id, "path": lora.lora_path}
    config = os.path.join(lora.lora_path, "adapter_config.json")  # rank and scale
    with open(config, "rb") as file:
        facts["config"] = file.read()
    return identity.weights_id(lora.lora_path, facts)


class Adapters:
    """Identities of adapters, which are read where one is used first. An engine keeps an adapter
    in memory, or may read it again: files that changed since say no more what it computes with."""

    def __init__(self):
        self.known = {}  # name, number, path -> how the files stood, identity

    def identity(self, lora):
        """Raises where no files name it (any more)."""
        which = lora.lora_name, lora.lora_int_id, lora.lora_path
        stands = files_of(lora.lora_path)
        if which not in self.known:
            self.known[which] = stands, adapter_id(lora)
        if self.known[which][0] != stands or files_of(lora.lora_path) != stands:
            raise ValueError(f"{lora.lora_path} has changed since it was used first")
        return self.known[which][1]


def files_of(folder):
    """What changes when a file of it does."""
    with os.scandir(folder) as entries:
        return sorted((e.name, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
                      for e in entries for s in [os.stat(e.path)])


def adapter_of(lora, adapters):
    if lora is None:
        return b""
    if not isinstance(lora.lora_path, str):
        raise InputError("adapter", f"its adapter's path is {type(lora.lora_path).__name__}, not "
                                    "text")
    try:
        return adapters.identity(lora)
    except (OSError, ValueError) as error:
        raise InputError("adapter", f"its adapter: {error}") from error


def identity_of(request, adapters):
    """None: this request's KV is of no prompt that token ids and keys could name: embeddings, a
    session whose tokens and images are still replaced. InputError: an input names nothing, say an
    adapter whose files are not here or have changed."""
    if request.prompt_embeds is not None or request.resumable:
        return None
    return Identity(salt=requests.salt_of(request.cache_salt),
                    lora=adapter_of(request.lora_request, adapters),
                    extra=requests.media_of(request.mm_features, request.num_tokens))


def asked(request, name, default=True):
    """A request's own word: kv_transfer_params {"spec": {"load": false, "store": false}}."""
    return requests.words_of(request.kv_transfer_params).get(name, default)


def may_be_lossy(request):
    """Whether rows of codes may answer it: generated text alone, and nobody asked for better."""
    sampling = request.sampling_params
    return (sampling is not None and sampling.prompt_logprobs is None
            and not asked(request, "exact", False))
