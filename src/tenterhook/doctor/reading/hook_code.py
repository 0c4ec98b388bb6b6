"""Answer questions about the code of a hook, without running the hook."""

from __future__ import annotations

from types import CodeType

from tenterhook.doctor.reading.bytecode import (
    Reading,
    adds,
    by_sample,
    counts,
    first_item,
    loads_attribute,
    reads,
    reads_what_it_stores,
    replaces_a_sum,
    texts_in,
    value_read,
)


class HookCode:
    """Knows the code of a hook."""

    __slots__ = ()

    #: the code object of the plain function inside a partial, a method or a callable object
    code: CodeType | None
    #: the code of the methods of its object that it calls
    helpers: tuple[CodeType, ...]
    reading: Reading | None

    def reads_argument(self, index: int) -> bool | None:
        """Return True if the code reads this argument, or None if there is no such argument or no code."""
        names = self.reading.arguments if self.reading is not None else ()
        return reads(self.code, names[index]) if self.code is not None and len(names) > index else None

    def calls_method(self, name: str) -> bool:
        """Return True if the code uses a function or an attribute of this name."""
        return self.code is not None and name in self.code.co_names

    @property
    def reads_gradients(self) -> bool:
        """Return True if the code reads the attribute `grad` of an object."""
        return self.code is not None and loads_attribute(self.code, "grad")

    @property
    def counts(self) -> bool:
        """Return True if the code adds to a variable that outlives the call."""
        return self.code is not None and counts(self.code)

    @property
    def samples_apart(self) -> bool:
        """Return True if the code treats the samples of a batch one by one."""
        return self.code is not None and by_sample(self.code)

    @property
    def combines(self) -> bool:
        """Return True if the code combines a new value with the one that it stored before."""
        codes = [one for one in (self.code, *self.helpers) if one is not None]
        names = {name for one in codes for name in one.co_names}
        known = any(adds(one) or reads_what_it_stores(one) or replaces_a_sum(one) for one in codes)
        return known or bool(names & {"get", "setdefault", "maximum", "minimum", "cat"})

    @property
    def adds(self) -> bool:
        """Return True if the code adds to a value in place."""
        return self.code is not None and adds(self.code)

    @property
    def texts(self) -> list[str]:
        """List the texts in the code."""
        return [one for one in texts_in(self.code) if len(one) > 1] if self.code is not None else []

    @property
    def first_item(self) -> str | None:
        """Return the expression with which the code reads the first item of its last argument, such as `output[0]`."""
        names = self.reading.arguments if self.reading is not None else ()
        return first_item(self.code, names[-1]) if self.code is not None and names else None

    @property
    def reads_parameter(self) -> str | None:
        """Return the expression with which the code reads the values of its first argument rather than its `.grad`."""
        names = self.reading.arguments if self.reading is not None else ()
        return value_read(self.code, names[0]) if self.code is not None and names else None
