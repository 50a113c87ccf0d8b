"""One request after the other to an OpenAI-compatible endpoint for chat completions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx

from lakehouse.agents.words import token_estimate
from lakehouse.errors import InvalidInputError

_AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504})
_UNUSABLE = frozenset({401, 403, 404})


class EndpointError(Exception):
    """The endpoint gave no reply to one conversation; the message says why."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model said.

    Attributes:
        message: as it goes back into the conversation: role, content, tool_calls.
        declined: why it declined to say anything; empty where it did not.
        tokens: of the request and the reply.
        counted: whether the endpoint counted them; they are estimated otherwise.
    """

    message: dict[str, Any]
    declined: str
    tokens: int
    counted: bool


@dataclass(frozen=True)
class ChatEndpoint:
    """Where a model is asked.

    Attributes:
        url: up to `/v1`; `/chat/completions` is added.
        model: its name there.
        key: sent as a bearer token; none without.
        seconds: a request may take, at most.
        reply_tokens: of one reply, at most.
        tries: of a request that fails in a way that passes.
    """

    url: str
    model: str
    key: str | None = field(default=None, repr=False)
    seconds: float = 120.0
    reply_tokens: int = 2_000
    tries: int = 4
    pause: float = 1.0

    async def reply(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]
    ) -> Reply:
        """The model's next message.

        Raises:
            EndpointError: this conversation cannot go on.
            InvalidInputError: no conversation can: the key, the model or the address is wrong.
        """
        request = {
            "model": self.model,
            "messages": list(messages),
            "tools": list(tools),
            "temperature": 0,
            "max_tokens": self.reply_tokens,
        }
        return _reply(await self._sent(request), request)

    async def _sent(self, request: dict[str, Any]) -> Any:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        url = f"{self.url.rstrip('/')}/chat/completions"
        why = ""
        async with httpx.AsyncClient(timeout=self.seconds, headers=headers) as client:
            for attempt in range(self.tries):
                if attempt:
                    await anyio.sleep(self.pause * 2 ** (attempt - 1))
                try:
                    answer = await client.post(url, json=request)
                except httpx.HTTPError as error:
                    why = f"{type(error).__name__}: {error}"
                    continue
                if answer.status_code in _UNUSABLE:
                    raise InvalidInputError(
                        f"{url} answers {answer.status_code} for the model {self.model}: "
                        f"{answer.text[:300]}"
                    )
                if answer.status_code == 200:
                    return _document(answer)
                why = f"status {answer.status_code}: {answer.text[:300]}"
                if answer.status_code not in _AGAIN:
                    break
        raise EndpointError(why)


def _document(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError as error:
        raise EndpointError(f"the endpoint's answer is no JSON: {answer.text[:300]}") from error


def _reply(document: Any, request: dict[str, Any]) -> Reply:
    try:
        choice = document["choices"][0]
        written = choice["message"]
        content, calls = written.get("content"), written.get("tool_calls")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise EndpointError(f"the endpoint's answer holds no message: {document!r:.300}") from error
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if isinstance(calls, list) and calls:
        message["tool_calls"] = calls
    declined = str(written.get("refusal") or "")
    if not declined and choice.get("finish_reason") == "content_filter":
        declined = "the endpoint's content filter"
    usage = document.get("usage") or {}
    counted = usage.get("total_tokens")
    estimated = token_estimate(json.dumps([request["messages"], request["tools"], message]))
    return Reply(message, declined, counted or estimated, counted is not None)
