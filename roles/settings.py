"""What every role's settings share: a prefix, typed keys, and refusals that name file and key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Self, cast

from pydantic import ValidationError

from roles.documents import Document, problems, sentence
from roles.refusal import Refusal

if TYPE_CHECKING:  # pure code imports settings where there is no pyinfra
    from pyinfra.api.host import Host


class RoleSettings(Document):
    """The variables of one role: the field `port` of the role `serve` is the variable `serve_port`.

    Every field has a type, a default where one makes sense, bounds, and a docstring that says what it is
    for and in which unit: the role's README is generated from them.
    """

    prefix: ClassVar[str]

    @classmethod
    def variables(cls) -> list[str]:
        """The names a user may write in group_vars."""
        return [cls.prefix + name for name in cls.model_fields]

    @classmethod
    def select(cls, data: Mapping[str, object], origin: Callable[[str], str]) -> Self:
        """The settings in `data`; `origin` says which file a variable came from.

        Raises Refusal with one sentence per variable that is unknown, of a wrong type or out of bounds.
        """
        own = {name.removeprefix(cls.prefix): value for name, value in data.items() if name.startswith(cls.prefix)}
        try:
            return cls.model_validate(own)
        except ValidationError as error:
            raise Refusal(
                "\n".join(
                    f"{origin(cls.prefix + str(problem['loc'][0]))}: {sentence(cls, problem, cls.prefix)}"
                    for problem in problems(cls, error, own)
                )
            ) from None

    @classmethod
    def of(cls, host: Host) -> Self:
        """The settings of a host, whose variables the inventory loader has accepted before."""
        return cls.select(cast(dict[str, object], host.data.dict()), lambda _: f"host {host.name}")
