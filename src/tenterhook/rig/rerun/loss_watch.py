"""Notice the loss of each backward pass, in any program."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tenterhook import torch_internals as private

_watches: weakref.WeakSet[LossWatch] = weakref.WeakSet()


class LossWatch:
    """The losses of the backward passes since the last step.

    Args:
        reached: Function that returns the number of backward passes that have reached the model. A loss of another
            model, as in a GAN, does not increase it.
    """

    def __init__(self, reached: Callable[[], int]) -> None:
        self.reached = reached
        #: called after each backward pass, if it is set
        self.after_backward: Callable[[], None] | None = None
        self._seen: list[tuple[Tensor, Tensor | None]] = []
        _watches.add(self)
        _install()

    def note(self, loss: Tensor, factor: Tensor | None) -> None:
        """Note the loss of a backward pass, and the factor by which it was multiplied."""
        self._seen.append((loss.detach(), factor))
        if self.after_backward is not None:
            self.after_backward()

    def take(self, *, scaled: bool) -> list[Tensor]:
        """Return the losses since the last call, and forget them.

        If `scaled` is True, they were multiplied by a loss scale. A loss whose scale is unknown is left out.
        """
        seen, self._seen = self._seen, []
        if not scaled:
            return [loss for loss, _ in seen]
        return [loss / factor.detach() for loss, factor in seen if factor is not None]

    def close(self) -> None:
        """Stop noticing losses."""
        _watches.discard(self)
        self._seen.clear()
        if not _watches:
            _uninstall()


_original: Any = None


def _install() -> None:
    """Replace `torch.autograd.backward`, which `Tensor.backward` calls. A tensor's own hooks do not see its value."""
    global _original
    if _original is None:
        original = _original = torch.autograd.backward

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            before = {watch: watch.reached() for watch in list(_watches)}
            is_loss = isinstance(tensors, Tensor) and tensors.numel() == 1 and tensors.is_floating_point()
            factor = private.factor_of(tensors) if is_loss else None
            original(tensors, *args, **kwargs)
            for watch, count in before.items():
                if is_loss and watch.reached() > count:
                    watch.note(tensors, factor)

        setattr(torch.autograd, "backward", backward)  # noqa: B010  # mypy would compare the signatures


def _uninstall() -> None:
    global _original
    if _original is not None and getattr(torch.autograd.backward, "__wrapped__", None) is _original:
        setattr(torch.autograd, "backward", _original)  # noqa: B010
        _original = None
