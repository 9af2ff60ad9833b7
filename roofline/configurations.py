"""Configurations as Hugging Face's transformers write them: read, or refused by architecture.

Each `model_type` in `data/configurations.toml` says which keys shape its layers. A file of another
type is refused, and so is a key that may change the shape and isn't among them.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from roofline.recurrent import delta_rule, mamba_1, mamba_2, short_convolution
from roofline_helpers.common.checks import (
    BadType,
    BadValue,
    RooflineError,
    UnknownName,
    mapping,
    shown,
    whole,
)
from roofline_helpers.common.dtypes import dtype
from roofline_helpers.models import Decoder, catalogue
from roofline_helpers.models import model as catalogued
from roofline_helpers.models.layers import (
    GROUP,
    Block,
    Experts,
    FeedForward,
    Latent,
    Mixer,
    Stored,
    attention,
    latent_attention,
)

PARTS = ("text_config", "llm_config", "language_config")
"""Keys under which a model that reads pictures or sounds too has its language part."""

NESTED = ("attention_other_setting", "sparse_attention_config")
"""Keys whose values are keys of layers: read as "outer.inner"."""


def model(given: Any) -> Decoder:
    """Return a decoder by a published name, or that of a ``config.json`` on disk.

    Parameters
    ----------
    given : str, Path or Decoder
        A model's name as its repository has it, in any case, with or without its owner and with
        words for a tuned version ("Instruct", a date), or a name of `roofline_helpers.models`; with
        a quantization's suffix ("-FP8", "-AWQ", "-NVFP4") it has those types. Or the path of a
        configuration as Hugging Face's transformers write it, or of its folder. Of a model that
        reads pictures too it is the language part.

    Raises
    ------
    UnknownName, BadType
        No such model; not a name.
    BadValue
        No such file; an architecture that isn't read, or a key that may change its shape and isn't
        understood: the message names it.

    Examples
    --------
    >>> model("mixtral-8x7b").experts.active
    2
    >>> model("meta-llama/Llama-3.1-8B-Instruct-AWQ").stored.weights
    'int4'
    """
    if isinstance(given, Decoder):
        return given
    if isinstance(given, str):
        if (known := _named(given)) is not None:
            return known
        if given.endswith(".json") or Path(given).is_dir() or re.search(r"^[./~]|/.*/", given):
            given = Path(given)
    if isinstance(given, Path):
        return configured(given / "config.json" if given.is_dir() else given)
    if not isinstance(given, str):
        raise BadType(f"model must be a name (str), a path or a Decoder, got {shown(given)}")
    raise UnknownName(f"unknown model {given!r}.{_nearest(given)}, or the path of its config.json")


def configured(path: Path) -> Decoder:
    """Return the decoder of a ``config.json``; raise BadValue as `model` says."""
    data = _json(path)
    try:
        return _Reader(path, data).decoder()
    except KeyError as error:
        raise BadValue(f"{path}: no {error} in this configuration") from None
    except RooflineError as error:
        raise BadValue(error if str(path) in str(error) else f"{path}: {error}") from None


# --- names ----------------------------------------------------------------------------------------

TUNED = r"instruct|chat|it|hf|base|pt|thinking|meta|\d{4}|a\d+b"
"""Words of a name that change no layer: how it was tuned, when, and how many weights are active."""


class _Name(NamedTuple):
    """A name that is known: as it is written, of which entry, and a quantization's suffix."""

    written: str
    entry: str
    suffix: str = ""


@cache
def _published() -> dict[str, Any]:
    """Return the published names by repository: a configuration each, or one of the catalogue."""
    file = resources.files("roofline").joinpath("data", "models.json")
    return dict(json.loads(file.read_text("utf-8")))


def _words(name: str, tuned: bool = False) -> list[str]:
    """Return the words of a name that tell models apart, or with those that hardly ever do."""
    words = re.split(r"[\s_:-]+", name.rpartition("/")[2].casefold())
    return [word for word in words if word and (tuned or not re.fullmatch(TUNED, word))]


@cache
def _names() -> dict[str, _Name]:
    names: dict[str, _Name] = {}
    for repository, entry in _published().items():
        for name in (repository, *entry.get("also", ())):
            for words in (_words(name), _words(name, tuned=True)):
                names.setdefault("".join(words), _Name(name.rpartition("/")[2], repository))
    for key, decoder in catalogue().items():
        for name in (key, decoder.name):
            same = names.get("".join(_words(name)))
            is_own = same and _published().get(same.entry, {}).get("like") == key
            names["".join(_words(name))] = _Name(
                decoder.name, same.entry if same and is_own else key
            )
    return names


@cache
def _named(given: str) -> Decoder | None:
    """Return the model of a name; None if it isn't known."""
    words, names = _words(given), _names()
    if known := names.get("".join(_words(given, tuned=True))) or names.get("".join(words)):
        return _decoder(known)
    for at in range(1, len(words)):
        suffix = "-".join(words[at:])
        known = names.get("".join(words[:at]))
        if known and suffix in _known()["suffixes"]:
            return _decoder(known._replace(suffix=suffix))
        if known and (size := re.fullmatch(r"(\d+\.?\d*)b", suffix)):  # which the name leaves out
            decoder = _decoder(known)
            if abs(decoder.parameters / 1e9 / float(size[1]) - 1) < 0.05:
                return decoder
    return None


def _nearest(given: str) -> str:
    """Return the names nearest to one that isn't known: "8b" says more than as many letters."""
    names, words = _names(), set(_words(given))
    near = difflib.get_close_matches("".join(_words(given)), names, n=12, cutoff=0.5)
    near.sort(key=lambda key: -len(words & set(_words(names[key].written))))
    listed = list(dict.fromkeys(names[key].written for key in near))[:5]
    count = len({known.written for known in names.values()})
    return (
        f" Nearest: {', '.join(listed)}. Give one of these {count} names"
        if listed
        else (f" None of {count} names is near: give another name")
    )


@cache
def _decoder(name: _Name) -> Decoder:
    """Return the decoder of a name that is known, in its types."""
    entry = _published().get(name.entry, {"like": name.entry})
    if "new" in entry:
        raise BadValue(
            f"{name.written} isn't read: new in it are {entry['new']}. Make a models.Decoder "
            "with a models.Block for each layer"
        )
    if "like" in entry:
        decoder = replace(catalogued(entry["like"]), name=name.written)
    else:
        decoder = _Reader(Path(name.entry) / "config.json", entry["config"]).decoder()
        stored = decoder.stored and replace(
            decoder.stored, says=f"{decoder.stored.says} of {name.entry}"
        )
        decoder = replace(decoder, name=name.written, source=entry["source"], stored=stored)
    if not name.suffix:
        return decoder
    kinds = _known()["suffixes"]
    kind, *read = kinds.get(name.entry.partition("/")[0], {}).get(name.suffix, kinds[name.suffix])
    shipped = decoder.stored and (decoder.stored.experts or decoder.stored.weights)
    if shipped and shipped.startswith(kind):  # the suffix says what it ships in
        return decoder
    around = "bf16" if kind == "nvfp4" and decoder.experts else kind  # as NVIDIA makes mixtures
    says = f"the suffix of {name.written}-{name.suffix}"
    types = {"weights": kind, "experts": kind, "mixers": around}
    stored = Stored(says, **types, activations=read[0] if read else None)
    return replace(decoder, name=f"{name.written}-{name.suffix}", stored=stored)


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(mapping(f"{path}", json.loads(path.read_text("utf-8"))))
    except OSError as error:
        raise BadValue(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadValue(f"{path} isn't JSON: {error}") from None


@cache
def _known() -> dict[str, Any]:
    file = resources.files("roofline").joinpath("data", "configurations.toml")
    return tomllib.loads(file.read_text("utf-8"))


class _Reader:
    """One configuration: its family, and the facts that its keys say."""

    def __init__(self, path: Path, whole_file: dict[str, Any]) -> None:
        self.path, self.file = path, whole_file
        self.text = dict(whole_file)
        self.part = ""
        part = next((key for key in PARTS if key in whole_file), None)
        if part:
            self.part = ", its language part"
            outer = {"tie_word_embeddings": whole_file.get("tie_word_embeddings")}
            self.text = outer | dict(mapping(part, whole_file[part]))
        for key in NESTED:
            inner = mapping(key, self.text.pop(key, None) or {})
            self.text |= {f"{key}.{name}": value for name, value in inner.items()}
        self.kind = str(self.text.get("model_type", whole_file.get("model_type")))
        self.family = self._family()
        self.gated = self.family.get("gated", True)
        self.keys: dict[str, list[str]] = {}
        for group in ("widths", *self.family.get("reads", ())):
            for fact, names in _known()["keys"][group].items():
                self.keys[fact] = [*self.keys.get(fact, ()), *names]
        for key, value in self.family.get("missing", {}).items():
            if self.text.get(key) is None:
                self.text[key] = value

    def _family(self) -> dict[str, Any]:
        named = (self.text if self.part else self.file).get("architectures") or [self.kind]
        architecture = str(named[0])
        families = _known()["family"]
        family = families.get(self.kind)
        if family is None:
            raise BadValue(
                f"{self.path}: the architecture {architecture} (model_type {self.kind}) isn't "
                f"read{self._new()}. Make a models.Decoder with a models.Block for each layer. "
                f"Read are {', '.join(families)}"
            )
        family = {**families.get(family.get("same"), {}), **family}
        base = self.kind.removesuffix("_text").replace("_", "")
        heads = "ForCausalLM|LMHeadModel|ForConditionalGeneration"
        wanted = f"(?i)({family.get('also', base)}|{base})\\w*({heads})$"
        if named != [self.kind] and not re.match(wanted, architecture.replace("_", "")):
            raise BadValue(
                f"{self.path}: the architecture {architecture} isn't read, though its model_type "
                f"{self.kind} is: its layers or its head may be others. Make a models.Decoder"
            )
        return family

    def _new(self) -> str:
        """Return which keys no family has: what is new in an architecture."""
        known = _known()
        names = {
            name for keys in known["keys"].values() for listed in keys.values() for name in listed
        }
        ignored = re.compile("|".join(known["harmless"]["parts"]))
        shaping = re.compile(known["structure"]["parts"])
        odd = [
            key
            for key in sorted(self.text.keys() - names - {*known["harmless"]["names"], *PARTS})
            if self.text[key] and shaping.search(key) and not ignored.search(key)
        ]
        return f": nobody else has {', '.join(odd)}" if odd else ""

    # --- facts --------------------------------------------------------------------------------

    def get(self, fact: str, default: Any = None) -> Any:
        """Return what the first key of a fact says, or the default."""
        for key in self.keys.get(fact, ()):
            if self.text.get(key) is not None:
                return self.text[key]
        return default

    def need(self, fact: str) -> int:
        """Return a whole number that must be there."""
        value = self.get(fact)
        if value is None:
            raise KeyError(" or ".join(self.keys.get(fact, [fact])))
        return whole(" or ".join(self.keys[fact]), value)

    def refuse_missing(self) -> None:
        """Raise KeyError for a key that parts the layers: null says none, no key a default."""
        facts = ["kv_rank", "count"]
        if self.family.get("near") == "sliding" and self.get("used", True):
            facts.append("window")
        for fact in facts:
            names = self.keys.get(fact)
            if names and not self.text.keys() & {*names}:
                raise KeyError(" or ".join(names))

    def refuse_unknown(self) -> None:
        """Raise BadValue for a key that may change the shape and isn't read."""
        known = {name for names in self.keys.values() for name in names}
        harmless, shaping = _known()["harmless"], re.compile(_known()["structure"]["parts"])
        kinds = self.text.get("layer_types")
        if isinstance(kinds, list) and all(kind == "full_attention" for kind in kinds):
            known.add("layer_types")  # what a family without a choice does in any case
        ignored = re.compile("|".join(harmless["parts"]))
        odd = [
            key
            for key in self.text.keys() - known - {*harmless["names"], *harmless["nested"]}
            if self.text[key] and shaping.search(key) and not ignored.search(key)
        ]
        if odd:
            said = ", ".join(f"{key} = {json.dumps(self.text[key])[:60]}" for key in sorted(odd))
            raise BadValue(
                f"{self.path}: {said} may change the layers, and isn't understood for model_type "
                f"{self.kind}. If it doesn't, remove it from a copy of the file; else make a "
                "models.Decoder with a models.Block for each layer"
            )

    # --- layers -------------------------------------------------------------------------------

    def decoder(self) -> Decoder:
        """Return the decoder."""
        self.refuse_unknown()
        self.refuse_missing()
        pattern = self.get("pattern")
        self.layers = len(pattern) if pattern and not self.get("layers") else self.need("layers")
        self.d_model, self.heads = self.need("d_model"), self.need("heads")
        for key in self.keys.get("same_width", ()):
            if self.text.get(key, self.d_model) != self.d_model:
                raise BadValue(
                    f"{key} = {self.text[key]} isn't read: another width than the model's"
                )
        if {*self.get("attention_types", ())} - {1}:
            raise BadValue("attn_type_list isn't read: layers of another kind")
        if self.get("valueless") != self.get("near") and self.get("valueless"):
            raise BadValue(f"{self.keys['valueless'][0]} isn't read: an indexer with values")
        kinds = self._indexers() if "indexers" in self.keys else self._kinds()
        mixers, parallel = map(self._mixer, kinds), self.family.get("parallel", False)
        feeds = self._feeds()
        return self._named(
            tuple(Block(mixer, feed, parallel) for mixer, feed in zip(mixers, feeds, strict=True))
        )

    def _named(self, blocks: tuple[Block, ...]) -> Decoder:
        """Return the decoder of these layers."""
        mixers = [block.mixer for block in blocks if block.mixer]
        mixers = [mixer for mixer in mixers if mixer.cache_width] or mixers
        mixer = next((mixer for mixer in mixers if not mixer.window), mixers[0])
        experts = next((block.experts for block in blocks if block.experts), None)
        dense = [f.d_ff for block in blocks for f in block.feeds if isinstance(f, FeedForward)]
        far = self.get("far_head_dim") or self.get("head_dim") or self.d_model // self.heads
        return Decoder(
            name=self.path.parent.name if self.path.name == "config.json" else self.path.stem,
            layers=self.layers,
            d_model=self.d_model,
            heads=mixer.heads,
            kv_heads=mixer.kv_heads if mixer.kind == "attention" else mixer.heads,
            head_dim=self.get("nope_dim") or far,
            d_ff=dense[0] if dense else self.get("d_ff", experts and experts.d_ff),
            vocabulary=self.need("vocabulary"),
            gated=self.gated,
            tied=bool(self.get("tied", False)),
            ahead=self.get("ahead", 0),
            experts=experts,
            blocks=blocks,
            stored=_stored(self.path, {**self.text, **self.file}, blocks),
            source=f"{self.path}{self.part}",
        )

    def _kinds(self) -> list[str]:
        """Return the kind of each layer's mixer; "" if it has none."""
        layers, near = range(self.layers), self.family.get("near", "full")
        listed = "pattern" if self.get("pattern") else "kinds"
        if isinstance(self.get(listed), list | str):
            called = {"linear": near, "dense": "", "experts": ""}
            return [called.get(kind, kind) for kind in self._listed(listed)]
        if near == "sliding" and not (self.get("used", True) and self.get("window")):
            return ["full"] * self.layers
        interval, far = self.get("every", self.family.get("every")), self.get("far")
        if self.get("near"):
            nearby = self._listed("near")
        elif far and near == "chunked":  # 0: no rotary embedding, all keys
            nearby = self._listed("far")
        elif far:
            nearby = [n not in far for n in layers]
        elif self.get("period"):
            nearby = [n % self.get("period") != self.get("period_offset", 0) for n in layers]
        elif self.get("used") and self.get("first") is not None:
            nearby = [n >= self.get("first") for n in layers]
        elif isinstance(interval, str):  # EXAONE's "LLLG"
            nearby = [interval[n % len(interval)] == "L" for n in layers]
        elif near != "full" and interval is None:
            raise KeyError("layer_types")
        else:
            nearby = [not interval or (n + 1) % whole("every", interval) != 0 for n in layers]
        return [near if is_near else "full" for is_near in nearby]

    def _indexers(self) -> list[str]:
        """Return "shared" for each layer that takes the keys which the last indexer chose.

        Source: transformers 5.24, `GlmMoeDsaConfig`.
        """
        if self.get("indexers"):
            return self._listed("indexers")
        every, first = self.get("indexer_every", 1), self.get("indexer_first", 2)
        return ["shared" if max(0, n + 1 - first) % every else "full" for n in range(self.layers)]

    def _listed(self, fact: str) -> list[Any]:
        """Return what a list with an entry for each layer says, and perhaps for those ahead."""
        given, names = self.get(fact), _known()["layers"]
        if len(given) == self.layers + self.get("ahead", 0):
            given = given[: self.layers]
        if len(given) != self.layers:
            said = json.dumps(given)[:60]
            raise BadValue(f"{said}: {len(given)} entries for {self.layers} layers")
        odd = next((kind for kind in given if str(kind) not in names), None)
        if odd is not None:
            key = next(key for key in self.keys[fact] if self.text.get(key))
            raise BadValue(f"{key} {odd!r} isn't read: a layer of another kind")
        return [names[str(kind)] for kind in given]

    def _mixer(self, kind: str) -> Mixer | None:
        match kind:
            case "":
                return None
            case "linear":
                heads = self.need("key_heads"), self.need("value_heads")
                dims = self.need("key_dim"), self.need("linear_value_dim")
                sizes = (*heads, *dims, self.need("kernel"))
                return delta_rule(self.d_model, *sizes, self._state_dtype())
            case "mamba":
                return self._mamba()
            case "conv":
                return short_convolution(self.d_model, self.need("kernel"))
        if self.get("kv_rank"):
            ranks = (self.need(name) for name in ("kv_rank", "rope_dim", "nope_dim", "value_dim"))
            index = [name for name in ("top", "index_heads", "index_dim") if name in self.keys]
            chosen = {name: self.need(name) for name in index}
            if kind == "shared":
                chosen |= {"index_heads": 0, "index_dim": 0}
            latent = Latent(self.get("q_rank", 0), *ranks)
            return latent_attention(self.d_model, self.heads, latent, **chosen)
        return self._attention(kind)

    def _attention(self, kind: str) -> Mixer:
        near, far = kind in ("sliding", "chunked"), kind == "full"
        heads, kv_heads = self.heads, self.get("kv_heads", self.heads)
        if "one_kv_head" in self.keys and not self.get("grouped", False):
            kv_heads = 1 if self.get("one_kv_head") else heads
        head_dim = self.get("head_dim") or self.d_model // heads
        value_dim = self.get("value_dim", 0)
        if near and "near_heads" in self.keys:
            heads, kv_heads = self.need("near_heads"), self.need("near_kv_heads")
            head_dim = self.need("near_head_dim")
            value_dim = self.need("near_value_dim") if "near_value_dim" in self.keys else 0
        if far and "far_head_dim" in self.keys:
            head_dim = self.need("far_head_dim")
            kv_heads = self.need("far_kv_heads") if self.get("one_matrix") else kv_heads
        gated = self.family.get("gate", False) and self.get("gated_attention", True)
        gate = heads * head_dim if gated else heads if self.get("head_gate") else 0
        chosen = {}
        if kind == "chosen":
            width = self.need("index_dim")
            chosen = {"choosing": width * self.need("index_heads"), "choosing_width": width}
            chosen["top"] = self.need("blocks") * self.need("block")
        return attention(
            self.d_model,
            heads,
            whole("kv_heads", kv_heads),
            whole("head_dim", head_dim),
            value_dim=value_dim,
            gate=gate,
            one_matrix=bool(far and self.get("one_matrix", False)),
            window=self.need("window") if near else 0,
            chunked=kind == "chunked",
            **chosen,
        )

    def _mamba(self) -> Mixer:
        state, kernel = self.need("state"), self.need("kernel")
        if self.get("mamba_heads"):
            heads, wide = self.need("mamba_heads"), self.get("mamba_dim")
            if wide in (None, "auto"):
                wide = self.need("expand") * self.d_model // heads
            sizes = (heads, whole("head_dim", wide), self.need("groups"), state, kernel)
            return mamba_2(self.d_model, *sizes, self._state_dtype(), self.get("chunk", 256))
        rank = self.get("rank")
        rank = -(-self.d_model // 16) if rank in (None, "auto") else rank
        inner = self.need("expand") * self.d_model
        return mamba_1(self.d_model, inner, state, whole("rank", rank), kernel)

    def _state_dtype(self) -> str:
        return dtype(self.get("state_dtype", "float32"))

    # --- feed-forwards ------------------------------------------------------------------------

    def _feeds(self) -> list[tuple[FeedForward | Experts, ...]]:
        experts = self._experts()
        dense = self._dense()
        listed = self._listed("pattern") if self.get("pattern") else []
        if experts is None and ("experts" in listed or self.get("beside")):
            self.need("count")
        if listed:
            feeds = {"dense": dense, "experts": experts}
            return [tuple(filter(None, [feeds.get(kind)])) for kind in listed]
        if experts is None:
            return [(dense,)] * self.layers
        if self.get("beside"):
            return [(dense, experts)] * self.layers
        return [(experts,) if mixed else (dense,) for mixed in self._mixed()]

    def _dense(self) -> FeedForward:
        d_ff = self.get("dense_width") or self.get("d_ff")
        if self.get("shared_width") and not self.get("count"):  # Granite's dense models
            d_ff = self.get("shared_width")
        if d_ff is None and "dense_width" in self.keys:
            d_ff = self.get("width")  # a file of experts alone
        if d_ff is None and self.kind.startswith(("gpt", "bloom", "falcon")):
            d_ff = 4 * self.d_model
        if d_ff is None:
            raise KeyError(self.keys["d_ff"][0])
        if self.get("adjusted"):  # LFM2: two thirds, up to a multiple
            d_ff = int(self.get("multiplier", 1) * int(2 * d_ff / 3))
            multiple = self.need("multiple")
            d_ff = multiple * -(-d_ff // multiple)
        return FeedForward(whole("intermediate_size", d_ff), self.gated)

    def _experts(self) -> Experts | None:
        if "count" not in self.keys or not self.get("count"):
            return None
        width = self.get("width") or self.get("d_ff")
        shared, wide = self.get("shared", 0), self.get("shared_width", 0)
        if wide and not shared:
            shared = 1
        elif wide and self.kind == "nemotron_h":  # as wide as all shared experts together
            wide //= shared
        return Experts(
            self.need("count"),
            self.need("active"),
            whole("width of an expert", width),
            shared,
            gated=self.gated,
            shared_d_ff=wide if shared and wide != width else 0,
            inner=self.get("inner", 0),
            groups=(groups := self.get("expert_groups") or 1),
            top_groups=self.get("top_groups") or groups,
        )

    def _mixed(self) -> list[bool]:
        """Return which layers have experts."""
        layers = range(self.layers)
        if self.get("feeds"):
            return [kind == "experts" for kind in self._listed("feeds")]
        if only := self.get("only_mixed"):
            mixed = {int(n) for n in (only.split(",") if isinstance(only, str) else only)}
            return [n in mixed for n in layers]
        step = self.get("step", 1)
        if isinstance(step, list):
            return self._listed("step")
        first, last = self.get("first_dense", 0), self.get("last_mixed", self.layers)
        last = self.layers if last < 0 else last
        offset = self.get("offset", 0 if self.kind.startswith("deepseek") else step - 1)
        only = self.get("only_dense", ())
        return [n % step == offset and first <= n <= last and n not in only for n in layers]


# --- types ----------------------------------------------------------------------------------------


def _stored(path: Path, data: Mapping[str, Any], blocks: Iterable[Block]) -> Stored | None:
    """Return the types that the file says; None if it says none."""
    is_config = path.name == "config.json"
    given = data.get("quantization_config") or data.get("compression_config")
    beside = path.with_name("hf_quant_config.json")
    if not given and is_config and beside.is_file():
        given = {"quant_method": "modelopt", **_json(beside).get("quantization", {})}
    if not given:
        name = path.parent.name if is_config else path.stem
        said = re.search(r"(?i)(?:^|[^a-z])(fp8|nvfp4|mxfp[48]|fp4|int[48]|awq|gptq|w\da\d+)", name)
        if said is None:
            plain = data.get("torch_dtype") or data.get("dtype")
            if plain not in ("bfloat16", "float16"):
                return None
            return Stored(f"the {plain} of {path.name}", "bf16", "bf16", "bf16")
        return Stored(f"the name says {said[1]}, but {path.name} has no quantization_config")
    try:
        kind, activations = _scheme(given)
    except (KeyError, ValueError):
        odd = json.dumps(given)[:90]
        return Stored(f"the quantization_config of {path.name} isn't read: {odd}")
    matrices: dict[str, list[tuple[float, bool]]] = {"mixers": [], "weights": [], "experts": []}
    for n, block in enumerate(blocks):
        dense = next((feed for feed in block.feeds if isinstance(feed, FeedForward)), None)
        parts = {"mixers": block.mixer, "experts": block.experts, "weights": dense}
        for part, layer in parts.items():
            if layer is not None:
                matrices[part] += _converted(n, part, layer, given)
    types: dict[str, str] = {}
    for part, sizes in matrices.items():
        total = sum(size for size, _ in sizes) or 1
        share = sum(size for size, converted in sizes if converted) / total
        if 0.1 < share < 0.9:
            return Stored(
                f"{path.name} converts {share:.0%} of the {part}: types differ by matrix or layer"
            )
        if sizes:
            types[part] = kind if share > 0.5 else "bf16"
    cache = given.get("kv_cache_scheme") or given.get("kv_cache_quant_algo")
    if isinstance(cache, Mapping):
        cache = _type(cache)
    method = given.get("quant_method", "modelopt")
    says = f"the {method} quantization of {path.name}"
    cache = cache and cache.lower()
    return Stored(says, **types, cache=cache, activations=activations, group=_group(given))


def _group(given: Mapping[str, Any]) -> int:
    """Return how many weights share a scale: a group has rows of one column."""
    schemes = [group["weights"] for group in (given.get("config_groups") or {}).values()]
    sizes = [scheme.get("group_size") or scheme.get("q_group_size") for scheme in (given, *schemes)]
    return next((size for size in sizes if size and size > 0), GROUP)


def _scheme(given: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the types of weights, and of what their matmuls read if it isn't the 16-bit one."""
    name = str(given.get("quant_algo") or given.get("quant_method"))
    bits = given.get("bits") or given.get("w_bit") or ""
    if f"{name}{bits}" in _known()["types"]:
        kind, *read = _known()["types"][f"{name}{bits}"]
        if kind == "fp8" and given.get("weight_block_size"):
            kind, read = "fp8 in blocks", ["fp8 in blocks"]
        return kind, read[0] if read else None
    groups = given["config_groups"].values()
    ((kind, read_as),) = {
        (
            _type(group["weights"]),
            group.get("input_activations") and _type(group["input_activations"]),
        )
        for group in groups
    }
    if read_as not in (None, kind):
        raise ValueError(f"{kind} with {read_as}")
    return kind, read_as


def _type(scheme: Mapping[str, Any]) -> str:
    bits = scheme["num_bits"]
    if scheme["type"] == "int":
        return f"int{bits}"
    blocks = {16: "nv", 32: "mx"}.get(scheme.get("group_size") or 0, "")
    return f"{blocks if bits < 8 or blocks == 'mx' else ''}fp{bits}"


def _converted(
    layer: int, part: str, of: Mixer | FeedForward | Experts, given: Mapping[str, Any]
) -> list[tuple[float, bool]]:
    """Return the sizes of a part's matrices, and whether each is converted, whatever its name."""
    kind = part
    if isinstance(of, Mixer):
        kind = "states" if of.state_bytes else "latents" if of.latent else "attention"
    known = _known()["modules"]
    sizes = _sizes(of) if isinstance(of, Mixer) else dict.fromkeys(known["feeds"], 1.0)
    ignored = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")
    kept = [pattern for key in ignored for pattern in given.get(key) or ()]
    targets = [
        group["targets"]
        for group in (given.get("config_groups") or {}).values()
        if "Linear" not in group.get("targets", ["Linear"])
    ]

    def is_converted(matrix: str) -> bool:
        names = [
            f"{start}layers.{layer}.{place}.{name}"
            for start in ("model.", "model.language_model.", "language_model.model.", "backbone.")
            for place in known["of"][kind]
            for name in known["feeds" if part != "mixers" else kind][matrix]
        ]

        def any_of(patterns: Iterable[str]) -> bool:
            return any(_matches(pattern, name) for pattern in patterns for name in names)

        return all(map(any_of, targets)) and not any_of(kept)

    return [(size, is_converted(matrix)) for matrix, size in sizes.items()]


def _sizes(mixer: Mixer) -> dict[str, float]:
    """Return the elements of a mixer's matrices, relative to each other."""
    within = mixer.weights - mixer.output
    if latent := mixer.latent:
        rest = {
            "q_b": latent.q_rank * mixer.heads * (latent.nope_dim + latent.rope_dim),
            "kv_b": latent.kv_rank * mixer.heads * (latent.nope_dim + latent.value_dim),
        }
        down, read = within - sum(rest.values()), latent.q_rank + latent.kv_rank + latent.rope_dim
        if not latent.q_rank:  # one matrix makes the queries
            return {"q_a": 0.8 * down, "kv_a": 0.2 * down, "kv_b": rest["kv_b"], "o": mixer.output}
        share = latent.q_rank / read
        return {"q_a": share * down, "kv_a": (1 - share) * down, **rest, "o": mixer.output}
    if mixer.state_bytes:
        return {"in": within, "out": mixer.output}
    cached = within * mixer.cache_width / mixer.made
    return {"q": within - cached, "k": cached / 2, "v": cached / 2, "o": mixer.output}


def _matches(pattern: str, module: str) -> bool:
    if pattern.startswith("re:"):
        return re.match(pattern[3:], module) is not None
    if "*" in pattern:
        return fnmatch.fnmatch(module, pattern) or fnmatch.fnmatch(module, f"{pattern}.*")
    return f".{pattern}." in f".{module}."
