"""Refusals of the Hub to give a repository, in words for users."""

from __future__ import annotations

from typing import Final, Literal

Kind = Literal["model", "data set"]

_EXPECTED: Final = {
    "model": "a folder with a model",
    "data set": "a file or folder that is there",
}
_PAGES: Final = {"model": "https://huggingface.co/", "data set": "https://huggingface.co/datasets/"}


def http_error() -> type[Exception]:
    """Find the base class of all errors of the HTTP library, which differs between releases."""
    from huggingface_hub.errors import HfHubHTTPError

    base: type[Exception] = HfHubHTTPError.__bases__[0]
    return base


def refusal(error: BaseException, kind: Kind, name: str) -> str | None:
    """Say in a line why the Hub does not give a repository, and what to do.

    Args:
        error: As huggingface_hub raised it.
        kind: Of the repository.
        name: Its id, as the user gave it.

    Returns:
        None where the Hub did not refuse: it could not be asked, or is broken for now.
    """
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, GatedRepoError):
        return (
            f"the {kind} is gated: ask for access at {_PAGES[kind]}{name}, then log in with hf "
            f"auth login"
        )
    if isinstance(error, RepositoryNotFoundError):
        return (
            f"there is no such {kind} on the Hub, or it is private: check the id, and log in with "
            f"hf auth login if it is yours"
        )
    if isinstance(error, RevisionNotFoundError):
        return f"the {kind} on the Hub has no such revision"
    if isinstance(error, HFValidationError):
        return f"expected {_EXPECTED[kind]}, or an id on the Hub such as org/name"
    return None
