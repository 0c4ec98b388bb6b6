"""Tell the outermost step of an optimizer from a step inside it."""

from __future__ import annotations

from types import FrameType


class OuterStep:
    """The outermost step of an optimizer that is running.

    An optimizer whose step calls `super().step()` runs its hooks twice. The frame of the outer call identifies it.
    After an error, that frame is not on the stack, so nothing has to be reset. The frame itself is kept and not its
    `id`, because a new frame may have the same one.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._frame: FrameType | None = None

    def is_running(self, frame: FrameType | None) -> bool:
        """Return True if the outer step is on the call stack that ends with this frame."""
        while self._depth and frame is not None:
            if frame is self._frame:
                return True
            frame = frame.f_back
        return False

    def begin(self, frame: FrameType) -> bool:
        """Begin a step, whose call has this frame. Return True if it is the outermost one."""
        if self.is_running(frame.f_back):
            self._depth += 1
            return False
        self._depth, self._frame = 1, frame
        return True

    def ends_here(self) -> bool:
        """End a step. Return True if it is the outermost one, which ends with `clear`."""
        if self._depth > 1:
            self._depth -= 1
            return False
        return True

    def clear(self) -> None:
        """End the outermost step."""
        self._depth, self._frame = 0, None
