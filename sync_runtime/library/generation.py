"""Generation between versions: a Hugging Face model answers under one version, or says which tokens were whose.

Weights change only while nothing generates. A version that is staged is activated when the user asks for it
(`switch="asked"`), before a call begins (`"calls"`), or also between two tokens of a running one (`"tokens"`): then
keys and values of what was said so far are computed anew under the new version, so that no token is made from two
versions at once. Caches that users keep from call to call are emptied when the weights have changed since they were
filled. Knows models by their method `generate` alone, and neither sidecar nor coding.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, get_args

import torch

from sync_runtime.errors import LocalError, SettingsError, SidecarLostError
from sync_runtime.library.version import Version

Switch = Literal["calls", "tokens", "asked"]
CACHE = "past_key_values"
_LOOK_S = 0.5
_ONE_SEQUENCE = ("num_beams", "num_return_sequences")
_NEEDS_ONE_VERSION = ("return_dict_in_generate", "streamer", CACHE)


class Versions(Protocol):
    """What is asked of a Subscriber."""

    @property
    def version(self) -> Version | None:
        """What the weights are."""

    @property
    def staged(self) -> Version | None:
        """What they could be."""

    def wait(self, seq: int | None = None, *, timeout: float | None = None) -> Version | None:
        """Waits for something newer."""

    def activate(self) -> Version | None:
        """Switches."""


@dataclass(frozen=True)
class Span:
    """Tokens made under one version: from `start`, counted from the first new token, to the next span."""

    start: int
    version: Version


@dataclass(frozen=True)
class Generated:
    """What one call made."""

    output: Any
    """What the model's `generate` returned."""
    spans: tuple[Span, ...]

    @property
    def version(self) -> Version | None:
        """The version that made all of it; None where several did."""
        return self.spans[0].version if len(self.spans) == 1 else None


class Generation:
    """Generates with a model whose weights a Subscriber replaces.

        with Subscriber(model, engine="transformers") as subscriber:
            generation = Generation(model, subscriber)
            made = generation.generate(input_ids, max_new_tokens=64)  # made.output, made.version

    Several threads may call it at once: a switch waits for calls that run, and calls that come wait for the switch.

    Args:
        model: with a method `generate`; it is put into evaluation mode.
        subscriber: of the same model. Nobody else may call its `activate`.
        switch: `"calls"`: a call runs under one version, the newest that is there. `"asked"`: under the one that was
            live before; only `activate` switches, as workers with tasks need it. `"tokens"`: a version that arrives
            meanwhile is activated after the next token; `Generated.spans` says which tokens are whose.
        timeout: seconds that a call waits for the first version, where the model's own weights are none.
    """

    def __init__(
        self, model: torch.nn.Module, subscriber: Versions, *, switch: Switch = "calls", timeout: float = 60.0
    ) -> None:
        if not callable(getattr(model, "generate", None)):
            raise SettingsError(f"a {type(model).__name__} has no method `generate`; give a model of transformers")
        if switch not in get_args(Switch):
            raise SettingsError(f"switch is {switch!r}; it must be one of {', '.join(get_args(Switch))}")
        self._model: Any = model.eval()
        self._subscriber, self._switch, self._timeout_s = subscriber, switch, timeout
        self._turn = _Turn()
        self._filled: weakref.WeakKeyDictionary[Any, Version] = weakref.WeakKeyDictionary()

    def activate(self) -> Version | None:
        """Switches to what is staged, as soon as nothing generates; returns what the weights are then."""
        if self._subscriber.staged is not None:
            with self._turn.alone():
                self._subscriber.activate()
        return self._subscriber.version

    def generate(self, inputs: torch.Tensor, **options: Any) -> Generated:
        """The model's `generate`, under the newest version that is here.

        With `switch="tokens"`: `inputs` are token ids, padded on the left where they differ in length; `max_new_tokens`
        is needed; beams, several sequences per input, scores, streams and caches of the user's are refused.
        """
        if self._switch == "tokens":
            return self._generate_by_tokens(inputs, options)
        with self._under_version() as version:
            self._refresh(options.get(CACHE), version)
            return Generated(self._model.generate(inputs, **options), (Span(0, version),))

    @contextmanager
    def _under_version(self) -> Iterator[Version]:
        """A block in which the weights are one version and stay so."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            if self._switch != "asked" or self._subscriber.version is None:
                with suppress(SidecarLostError):  # it starts again; meanwhile the weights are what they were
                    self.activate()
            with self._turn.together():
                version = self._subscriber.version
                if version is not None:
                    self._model.eval()  # users that also evaluate losses leave it otherwise: dropout would be on
                    yield version
                    return
            if time.monotonic() > deadline:
                raise LocalError(f"no version arrived within {self._timeout_s:g} s: is the trainer there?")
            self._subscriber.wait(timeout=_LOOK_S)

    def _refresh(self, cache: Any, version: Version) -> None:
        """Empties a cache that was filled under another version: the whole input is read anew then."""
        if cache is None:
            return
        if self._filled.get(cache, version) != version:
            cache.reset()
            if cache.get_seq_length():
                raise LocalError("this kind of cache cannot be emptied: make a new one when the version changes")
        self._filled[cache] = version

    # --- between tokens ----------------------------------------------------------------------------------------------

    def _generate_by_tokens(self, inputs: torch.Tensor, options: dict[str, Any]) -> Generated:
        progress = _Progress.begin(inputs, dict(options))
        spans: list[Span] = []
        while progress.has_more:
            with self._under_version() as version:
                if not spans or spans[-1].version != version:
                    spans.append(Span(progress.made, version))
                progress = progress.extended(self._model.generate(progress.ids, **self._options(progress)))
        return Generated(progress.whole(), tuple(spans))

    def _options(self, progress: _Progress) -> dict[str, Any]:
        given = list(progress.options.get("stopping_criteria") or [])
        return {
            **progress.options,
            "max_new_tokens": progress.rest,
            "attention_mask": progress.mask,
            "stopping_criteria": [*given, self._stop_when_staged],
        }

    def _stop_when_staged(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        is_staged = self._subscriber.staged is not None
        return torch.full((input_ids.shape[0],), is_staged, dtype=torch.bool, device=input_ids.device)


@dataclass(frozen=True)
class _Progress:
    """A batch on its way: the rows that go on, and those that have ended."""

    options: dict[str, Any]
    ids: torch.Tensor
    mask: torch.Tensor
    rows: torch.Tensor
    """Which rows of the input go on."""
    ended: dict[int, torch.Tensor]
    prompt: int
    made: int
    rest: int
    ends: torch.Tensor
    pad: int

    @classmethod
    def begin(cls, inputs: torch.Tensor, options: dict[str, Any]) -> _Progress:
        """Takes what it steers itself out of the options; raises SettingsError for what it cannot."""
        if any(options.get(name, 1) != 1 for name in _ONE_SEQUENCE):
            raise SettingsError("switch 'tokens' makes one sequence per input, without beams: use 'calls'")
        if any(options.get(name) for name in _NEEDS_ONE_VERSION):
            raise SettingsError(f"switch 'tokens' cannot do {', '.join(_NEEDS_ONE_VERSION)}: use 'calls'")
        if "max_new_tokens" not in options or "pad_token_id" not in options:
            raise SettingsError("switch 'tokens' needs `max_new_tokens` and `pad_token_id`")
        rest, mask = int(options.pop("max_new_tokens")), options.pop("attention_mask", None)
        ends = options.get("eos_token_id")
        given = torch.ones_like(inputs) if mask is None else mask
        rows = torch.arange(inputs.shape[0])
        stops = torch.tensor([] if ends is None else ends, dtype=inputs.dtype).reshape(-1)
        return cls(options, inputs, given, rows, {}, inputs.shape[1], 0, rest, stops, int(options["pad_token_id"]))

    @property
    def has_more(self) -> bool:
        """Whether some row has not ended."""
        return self.rest > 0 and len(self.rows) > 0

    def extended(self, sequences: torch.Tensor) -> _Progress:
        """With the tokens of another piece; rows that have ended are set aside."""
        new = sequences[:, self.ids.shape[1] :]
        over = torch.isin(new, self.ends.to(new.device)).any(dim=1)
        ended = {int(self.rows[row]): sequences[row] for row in over.nonzero().flatten().tolist()}
        on, mask = ~over, torch.cat([self.mask, torch.ones_like(new)], dim=1)
        return replace(
            self, ids=sequences[on], mask=mask[on], rows=self.rows[on.cpu()], ended=self.ended | ended,
            made=self.made + new.shape[1], rest=self.rest - new.shape[1],
        )  # fmt: skip

    def whole(self) -> torch.Tensor:
        """All rows in the order of the input, padded on the right."""
        rows = self.ended | dict(zip(self.rows.tolist(), self.ids, strict=True))
        listed = [rows[number] for number in sorted(rows)]
        return torch.nn.utils.rnn.pad_sequence(listed, batch_first=True, padding_value=self.pad)


class _Turn:
    """Many may generate together; a switch is alone, and whoever comes later waits for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._switching = 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Beside others that do not write."""
        with self._changed:
            self._changed.wait_for(lambda: not self._switching)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While nobody generates; two switches take turns by the subscriber's own lock."""
        with self._changed:
            self._switching += 1
            self._changed.wait_for(lambda: not self._running)
        try:
            yield
        finally:
            with self._changed:
                self._switching -= 1
                self._changed.notify_all()
