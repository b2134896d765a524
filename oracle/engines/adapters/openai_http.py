"""How is a server asked over HTTP, and what do its refusals say?"""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Generator
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Any

_LOOPBACK = ("localhost", "127.0.0.1", "::1")

_WORDS_SHOWN = 500

_END = "[DONE]"


class ServerRefused(ValueError):
    """The server did not take a request, in its own words."""


class ServerFailed(RuntimeError):
    """The server cannot be reached, broke, or answered with something that is no answer."""


@dataclass(frozen=True)
class Server:
    """A server that speaks JSON.

    Attributes:
        base_url: What its paths are appended to.
        api_key: Sent with each request, where it wants one.
        timeout: Seconds of silence after which a request has failed.
    """

    base_url: str
    api_key: str | None = None
    timeout: float = 300.0

    def get(self, path: str) -> dict[str, Any]:
        """Asks for a document.

        Raises:
            ServerRefused: It does not give it.
            ServerFailed: It failed.
        """
        with self._ask(path, None) as response:
            return self._read(response, path)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Sends a document and gives the answer.

        Raises:
            ServerRefused: It does not take it.
            ServerFailed: It failed.
        """
        with self._ask(path, body) as response:
            return self._read(response, path)

    def stream(self, path: str, body: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """Sends a document and gives the events of the answer as they come; closing it hangs up.

        Raises:
            ServerRefused: It does not take it.
            ServerFailed: It failed.
        """
        with self._ask(path, body) as response:
            try:
                for line in response:
                    text = line.decode("utf-8", errors="replace").strip()
                    if not text.startswith("data:"):
                        continue
                    if text.removeprefix("data:").strip() == _END:
                        return
                    yield _object(text.removeprefix("data:"), path)
            except (OSError, HTTPException) as error:
                message = f"{path} broke off: {type(error).__name__}: {error}"
                raise ServerFailed(message) from error

    def _ask(self, path: str, body: dict[str, Any] | None) -> HTTPResponse:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.api_key is not None:
            headers["Authorization"] = f"Bearer {self.api_key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base_url + path, data, headers)  # noqa: S310 - the user names the address
        try:
            response: HTTPResponse = self._opener().open(request, timeout=self.timeout)
        except urllib.error.HTTPError as error:
            words = f"{error.code}: {_words(error.read())}"
            if error.code < 500:  # noqa: PLR2004 - below it is the request's fault, from there the server's
                raise ServerRefused(words) from error
            message = f"{path} failed with {words}"
            raise ServerFailed(message) from error
        except (OSError, HTTPException) as error:
            message = f"{self.base_url}{path} gives no answer: {type(error).__name__}: {error}"
            raise ServerFailed(message) from error
        return response

    def _opener(self) -> urllib.request.OpenerDirector:
        """No proxy stands between this machine and itself."""
        is_near = urllib.parse.urlsplit(self.base_url).hostname in _LOOPBACK
        return urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if is_near else []))

    def _read(self, response: HTTPResponse, path: str) -> dict[str, Any]:
        try:
            text = response.read().decode("utf-8", errors="replace")
        except (OSError, HTTPException) as error:
            message = f"{path} broke off: {type(error).__name__}: {error}"
            raise ServerFailed(message) from error
        return _object(text, path)


def _object(text: str, path: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        message = f"{path} answered with what is no JSON: {text[:_WORDS_SHOWN]!r}"
        raise ServerFailed(message) from error
    if not isinstance(value, dict):
        message = f"{path} answered with what is no object: {text[:_WORDS_SHOWN]!r}"
        raise ServerFailed(message)
    return value


def _words(content: bytes) -> str:
    """What an answer that refuses says, as far as it can be read."""
    text = content.decode("utf-8", errors="replace").strip()
    try:
        value = json.loads(text)
        for key in ("error", "message"):
            if isinstance(value, dict) and key in value:
                value = value[key]
        return value if isinstance(value, str) else json.dumps(value)[:_WORDS_SHOWN]
    except json.JSONDecodeError:
        return text[:_WORDS_SHOWN]
