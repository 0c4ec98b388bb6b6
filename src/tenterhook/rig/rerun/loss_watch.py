"""Notice the loss of each backward pass, in any program."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tenterhook import torch_internals as private
from tenterhook.record.containment import ContainedErrors

#: what fails if a loss cannot be noted
WATCHING = "watching the losses"

_watches: weakref.WeakSet[LossWatch] = weakref.WeakSet()


class LossWatch:
    """The losses of the backward passes since the last step.

    Args:
        reached: Function that returns the number of backward passes that have reached the model. A loss of another
            model, as in a GAN, does not increase it.
        errors: Receives the errors of watching, which must not stop the training.
    """

    def __init__(self, reached: Callable[[], int], errors: ContainedErrors) -> None:
        self._reached = reached
        self._errors = errors
        #: called after each backward pass, if it is set
        self.after_backward: Callable[[], None] | None = None
        self._seen: list[tuple[Tensor, Tensor | None]] = []
        _watches.add(self)
        _install()

    def before(self, tensors: Any) -> tuple[int, Tensor | None] | None:
        """Look at a backward pass before it begins. Return None if it does not begin with a loss."""
        return self._errors.contain(WATCHING, self._look, tensors)

    def _look(self, tensors: Any) -> tuple[int, Tensor | None] | None:
        is_loss = isinstance(tensors, Tensor) and tensors.numel() == 1 and tensors.is_floating_point()
        return (self._reached(), private.factor_of(tensors)) if is_loss else None

    def after(self, loss: Tensor, known: tuple[int, Tensor | None]) -> None:
        """Note the loss of a backward pass if the pass has reached the model. `known` is what `before` returned."""
        self._errors.contain(WATCHING, self._note, loss, *known)

    def _note(self, loss: Tensor, reached: int, factor: Tensor | None) -> None:
        if self._reached() > reached:
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

    def forget(self) -> None:
        """Forget the losses since the last call."""
        self._seen.clear()

    def close(self) -> None:
        """Stop noticing losses."""
        _watches.discard(self)
        self.forget()
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
            begun = [(watch, watch.before(tensors)) for watch in list(_watches)]
            original(tensors, *args, **kwargs)
            for watch, known in begun:
                if known is not None:
                    watch.after(tensors, known)

        setattr(torch.autograd, "backward", backward)  # noqa: B010  # mypy would compare the signatures


def _uninstall() -> None:
    global _original
    if _original is not None and getattr(torch.autograd.backward, "__wrapped__", None) is _original:
        setattr(torch.autograd, "backward", _original)  # noqa: B010
        _original = None
