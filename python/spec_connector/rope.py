"""The rotary turn of a model's keys, out of its Hugging Face configuration, as spec_model has it.

Holds: what spec_model cannot say (a turn of a part of the head, of some layers, by several
positions, of another scaling than llama3's) is NONE and the reason: keys are then quantised as they
come. A turn that is not the engine's costs bits and nothing else: it is done and undone.
Does not: import anything but the standard library; look at weights or modules, which the
scheduler's process does not have.
Tests: tests/test_rope.py
"""
import dataclasses
import math

from . import abi

# Models whose pairs lie side by side. No configuration says so; the engines' code does.
INTERLEAVED = ("cohere", "ernie4_5", "ernie4_5_moe", "glm", "glm4", "gptj")
# Models of which some layers turn no keys, or others, and no parameter says so.
UNEVEN = ("cohere2", "exaone4", "llama4_text")
LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


@dataclasses.dataclass(frozen=True)
class Rope:
    """Members of spec_model. why: of kind NONE, in words."""
    kind: int = abi.ROPE_NONE
    theta: float = 0.0
    scaling_kind: str = ""
    scaling: tuple = ()
    why: str = ""


def _is_number(value, least):
    return (isinstance(value, (int, float)) and not isinstance(value, bool)
            and math.isfinite(value) and value >= least)


def _parameters(config):
    """One dict, of either generation of configurations; None: kinds of layers have others."""
    words = dict(getattr(config, "rope_parameters", None)
                 or getattr(config, "rope_scaling", None) or {})
    kinds = [value for value in words.values() if isinstance(value, dict)]
    if kinds:
        if len(kinds) < len(words) or any(kind != kinds[0] for kind in kinds):
            return None
        words = dict(kinds[0])
    for name in ("rope_theta", "rotary_emb_base"):  # the other name: GPT-NeoX, Qwen
        if words.get("rope_theta") is None:
            words["rope_theta"] = getattr(config, name, None)
    return words


def _turned(config, words, head_size):
    """How many of a head's elements turn."""
    for name in ("partial_rotary_factor", "rotary_pct"):  # the other name: GPT-NeoX
        share = words.get(name, getattr(config, name, None))
        if share is not None:
            return int(head_size * share)
    for name in ("rotary_dim", "qk_rope_head_dim"):
        if getattr(config, name, None) is not None:
            return getattr(config, name)
    return head_size


def _uneven(config):
    """Why layers do not turn alike, or None."""
    model_type = getattr(config, "model_type", "")
    layers = getattr(config, "no_rope_layers", None)  # 1: of those it does turn
    if model_type in UNEVEN or (layers and not all(layers)):
        return "some layers turn no keys"
    if not layers and getattr(config, "no_rope_layer_interval", None):
        return "some layers turn no keys"
    if getattr(config, "rope_local_base_freq", None) is not None:
        return "layers turn by several bases"
    if getattr(config, "dual_chunk_attention_config", None) is not None:
        return "keys turn by their place in a chunk"
    return None


def _scaling(words):
    """kind, values, or None and why."""
    kind = words.get("rope_type") or words.get("type") or "default"
    sections = [name for name in words if name.endswith("rope_section")]
    if sections or kind == "mrope":
        return None, "keys turn by several positions"
    if words.get("use_fope"):
        return None, "a turn of Fourier series"
    if kind == "default":
        return "", ()
    if kind != "llama3":
        return None, f"scaling {kind!r}"
    values = tuple(words.get(name) for name in LLAMA3)
    if not all(_is_number(value, 0) for value in values):
        return None, "a scaling llama3 with parameters that are missing"
    factor, low, high, length = values
    if factor < 1 or low <= 0 or high <= low or length <= 0:
        return None, f"a scaling llama3 of {values}"
    return "llama3", tuple(float(value) for value in values)


def of(config, head_size):
    """config: of the text model; head_size: of K as it is stored."""
    why = _uneven(config)
    words = _parameters(config)
    if words is None:
        why = why or "layers turn by several parameters"
    if why:
        return Rope(why=why)
    if not _is_number(words.get("rope_theta"), 1):
        return Rope(why="no rope_theta")
    turned = _turned(config, words, head_size)
    if turned != head_size or head_size % 2:
        return Rope(why=f"{turned} of a head's {head_size} elements turn")
    kind, values = _scaling(words)
    if kind is None:
        return Rope(why=values)
    beside = getattr(config, "model_type", "") in INTERLEAVED
    return Rope(abi.ROPE_INTERLEAVED if beside else abi.ROPE_HALF, float(words["rope_theta"]),
                kind, values)


def line(settings, rope):
    """What there is to say of it, once: settings are the plugin's configuration. None: nothing."""
    layered = settings.get("layered")
    if (not rope.why or not isinstance(layered, dict) or
            layered.get("bit_allocation") != "per_channel"):
        return None
    return ("layered.bit_allocation per_channel: keys are quantised with their rotary embedding, "
            f"which takes about half a bit more: {rope.why}")
