"""What every view is: JSON values, and one step of a fold."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, Self

    from onrecord.log.events import Event


class View:
    """A value folded from events. Subclasses keep JSON values only and set them up in `__init__`."""

    KINDS: ClassVar[frozenset[str]]
    """The kinds this view listens to."""

    def apply(self, event: Event) -> None:
        """Fold one event in. The data of an erased event is None: its content is gone, but it happened."""
        raise NotImplementedError

    def dump(self) -> dict[str, Any]:
        """The values, for a snapshot."""
        return vars(self)

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Self:
        """The view a snapshot was made of."""
        view = cls()
        vars(view).update(saved)
        return view
