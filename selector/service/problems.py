"""Errors as problem documents (RFC 9457), with the codes that they have everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from selector.errors import AttnselError, ManifestError, UnknownManifestError
from selector.report.data import to_json

__all__ = ["PROBLEM_TYPE", "Problem", "problem_body", "problem_of"]

PROBLEM_TYPE = "application/problem+json"


class Problem(Exception):  # noqa: N818 (RFC 9457 calls it so)
    """Why a request has no answer.

    Attributes:
        status: of HTTP.
        code: stable; as everywhere in attnsel, or one of the service's own.
        detail: on one line.
        findings: in a document that the request holds.
        headers: that go with it.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        findings: Sequence[object] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.findings = findings
        self.headers = headers or {}

    @property
    def parts(self) -> tuple[int, str, str, list[object]]:
        """What another process makes the same problem from."""
        return self.status, self.code, self.detail, [to_json(one) for one in self.findings]


def problem_of(error: AttnselError) -> Problem:
    """An error of a call as a problem: a manifest that is not served is 404, all else 422."""
    if isinstance(error, UnknownManifestError):
        return Problem(404, error.code, str(error))
    findings = error.findings if isinstance(error, ManifestError) else ()
    return Problem(422, error.code, str(error), findings)


def problem_body(problem: Problem) -> bytes:
    """The document."""
    document: dict[str, Any] = {
        "type": f"urn:attnsel:problem:{problem.code.lower().replace('_', '-')}",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        "findings": [to_json(finding) for finding in problem.findings],
    }
    return msgspec.json.encode(document)
