"""identity: nothing is found by what it was not computed by.

An engine fills the store. Others ask the same prompts over it: one byte of the weights changed in
the first MiB, in the last, in the middle (of a file above 64 MiB with "weights": "full" alone),
another dtype, a LoRA adapter and one with another scale, cache_salt. None has a token from the
store at first, and each finds its own rows then. After a reset nothing is found. Requests for
prompt_logprobs get whole lists, those of an engine without the connector.
"""
import json
import os
import shutil
import struct
import tempfile
import time

from spec_connector.identity import WHOLE_BYTES_MAX
from .engines import PREFIX, Host, differences, prompts_of, verdict, words_of

MIB = 1 << 20
FULL = {"extra": {"weights": "full"}}
PATIENCE_SECONDS = 60


def changed(folder, model, name, at):
    """A copy of the model with a bit of its tensors flipped, in byte at(size, where they begin)."""
    copy = os.path.join(folder, f"model-{name}")
    shutil.copytree(model, copy, copy_function=shutil.copyfile)
    os.chmod(copy, 0o755)
    with open(os.path.join(copy, "model.safetensors"), "r+b") as file:
        first = 8 + struct.unpack("<Q", file.read(8))[0]
        place = at(os.path.getsize(file.name), first)
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))
    return copy


def adapter(folder, name, model, alpha):
    """A LoRA adapter for q_proj of every layer, of a model of opt-recall's kind."""
    with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    path, rank, size = os.path.join(folder, f"lora-{name}"), 8, config["hidden_size"]
    os.mkdir(path)
    with open(os.path.join(path, "adapter_config.json"), "w", encoding="utf-8") as file:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "bias": "none",
                   "target_modules": ["q_proj"]}, file)
    header, data = {}, b""
    for layer in range(config["num_hidden_layers"]):
        for part, shape in (("A", [rank, size]), ("B", [size, rank])):
            raw = struct.pack(f"<{rank * size}f",
                              *[((i * 7 + layer) % 13 - 6) / 40 for i in range(rank * size)])
            key = f"base_model.model.model.decoder.layers.{layer}.self_attn.q_proj.lora_{part}"
            header[f"{key}.weight"] = {"dtype": "F32", "shape": shape,
                                       "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(path, "adapter_model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    return path


class Case:
    def __init__(self, args, host, folder):
        self.args, self.host, self.folder = args, host, folder
        self.prompts, self.ok = prompts_of(2, 7), True
        self.prompts[1][:PREFIX] = prompts_of(2, 77)[1][:PREFIX]  # they share nothing

    def words(self, model=None, **engine):
        return {**words_of(self.args, self.args.block[0], self.folder, **engine),
                **({"model": model} if model else {})}

    def found(self, **how):
        return [answer["external"] for answer in
                self.host.ask(self.prompts, tokens=4, **how)["answers"]]

    def settle(self):
        """In the store is what the last request computed, when another one has run."""
        self.host.ask([[9] * 8], tokens=2)
        self.host.call("runs.inside:written")

    def stranger(self, name, **how):
        """What others stored is not found; what it stored itself is."""
        before = self.found(**how)
        self.settle()
        end = time.monotonic() + PATIENCE_SECONDS  # the scheduler's side sees them soon
        while not all(own := self.found(**how)) and time.monotonic() < end:
            time.sleep(0.1)
        self.ok &= verdict(f"{name}: {before} tokens from the store, then {own} of its own",
                           not any(before) and all(own))

    def engine(self, name, **words):
        self.host.start(self.words(**words))
        self.stranger(name)
        self.host.stop()


def weights(case):
    model = case.args.model
    for name, at in (("first", lambda size, first: first + 5), ("last", lambda size, _: size - 5)):
        case.engine(f"weights changed in the {name} MiB",
                    model=changed(case.folder, model, name, at))
    size = os.path.getsize(os.path.join(model, "model.safetensors"))
    if not 2 * MIB < size:
        case.ok = verdict("a model whose weight file has a middle", False)
    full = changed(case.folder, model, "full", lambda size, _: size // 2)
    if size <= WHOLE_BYTES_MAX:  # is read whole whatever is configured: "full" is nothing else
        middle = changed(case.folder, model, "middle", lambda size, _: size // 2 + 1)
        case.engine("weights changed in the middle", model=middle)
    else:
        case.engine('"weights": "full", the first time', **FULL)
    case.engine('"weights": "full", changed in the middle', model=full, **FULL)


def adapters(case):
    """Beside each other, and then one whose scale was changed where it is."""
    paths = [adapter(case.folder, name, case.args.model, alpha)
             for name, alpha in (("one", 16), ("two", 64))]
    words = case.words(enable_lora=True, max_lora_rank=8, max_loras=2)
    case.host.start(words)
    base = case.found()
    case.ok &= verdict(f"an engine for adapters, asked without one: {base} tokens of the engine "
                       "without", all(base))
    for i, path in enumerate(paths):
        case.stranger(f"adapter {i + 1}", lora=[f"lora{i}", i + 1, path])
    case.host.stop()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copyfile(os.path.join(paths[1], name), os.path.join(paths[0], name))
    case.host.start(words)
    case.stranger("adapter 1 with another scale", lora=["lora0", 1, paths[0]])
    case.host.stop()


def requests(case):
    host = case.host
    host.start(case.words())
    mine = case.found()
    case.ok &= verdict(f"the engine that filled the store: {mine} tokens from it", all(mine))
    for salt in ("a", "b"):
        case.stranger(f"cache_salt {salt}", more={"cache_salt": salt})
    asked = host.ask(case.prompts, prompt_logprobs=5)["answers"]
    forgot = host.call("runs.inside:reset")
    case.ok &= verdict(f"a reset of vLLM's prefix cache with the connector says {forgot}", forgot)
    case.stranger("after a reset")
    host.stop()
    plain = host.once(words_of(case.args, case.args.block[0]), case.prompts,
                      prompt_logprobs=5)["answers"]
    whole = sum(len(a["prompt_logprobs"]) == a["prompt"] and a["prompt_logprobs"][0] is None
                and all(len(step) >= 5 for step in a["prompt_logprobs"][1:]) for a in asked)
    same = sum(a["prompt_logprobs"] == b["prompt_logprobs"] for a, b in zip(asked, plain))
    case.ok &= verdict(
        f"prompt_logprobs: {whole} of {len(asked)} lists whole, {same} as without the connector, "
        f"{len(asked) - len(differences(asked, plain))} answers bit-identical, "
        f"{[a['external'] for a in asked]} tokens from the store",
        whole == same == len(asked) and not differences(asked, plain)
        and not any(a["external"] for a in asked))


def main(args):
    with tempfile.TemporaryDirectory() as folder, Host(folder) as host:
        case = Case(args, host, folder)
        case.engine("an empty store")
        requests(case)
        weights(case)
        case.engine("bfloat16", dtype="bfloat16")
        adapters(case)
        return case.ok
