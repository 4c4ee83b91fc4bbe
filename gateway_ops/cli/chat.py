"""``gateway chat``: a conversation in the terminal, or one answer for a script."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.text.harmless import harmless, one_line
from gateway_ops.cli.console import echo_json, fail
from gateway_ops.cli.shared_options import LOCAL_URL, ApiKey, ServerUrl

if TYPE_CHECKING:
    from gateway_ops.chat.chat_server import ChatServer, PendingReply
    from gateway_ops.chat.dialogue import Dialogue

_INTERRUPTED = 130
_NO_LIST = (404, 405, 501)


def chat(  # noqa: PLR0913, PLR0917 - one for each option
    url: ServerUrl = LOCAL_URL,
    model: Annotated[str | None, typer.Option(help="Model to talk to; the first listed model when not given.")] = None,
    system: Annotated[str, typer.Option(help="System prompt.")] = "",
    message: Annotated[
        list[str] | None,
        typer.Option("--message", "-m", help="Send this message, print the answer and end; -: standard input."),
    ] = None,
    tools: Annotated[Path | None, typer.Option(help="OpenAI tool definitions as JSON; you type the results.")] = None,
    logprobs: Annotated[bool, typer.Option("--logprobs", help="Tint tokens by their probability.")] = False,
    parameters: Annotated[
        list[str] | None, typer.Option("--set", help="A request parameter, such as temperature=0; may be repeated.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, max=86400, help="Seconds that a response may take.")] = 600.0,
    api_key: ApiKey = None,
    as_json: Annotated[bool, typer.Option("--json", help="With a message: print one JSON object.")] = False,
) -> None:
    """Chat with a model of any OpenAI-compatible server; with a message or text on standard input, send one request."""
    from gateway_ops.chat.chat_server import ChatServer  # noqa: PLC0415 - the other commands need none of it
    from gateway_ops.chat.dialogue import Dialogue, DialogueError, read_parameters, read_tools  # noqa: PLC0415
    from gateway_ops.chat.streamed_answer import ChatError  # noqa: PLC0415
    from gateway_ops.cli.chat_session import ChatSession  # noqa: PLC0415

    question = _question(message)
    if question is None and as_json:
        raise fail("--json takes one message: -m TEXT, or text on standard input")
    if question is not None and logprobs and not as_json:
        raise fail("with one message --logprobs needs --json: printed text has no colours")
    try:
        given = read_tools(tools) if tools is not None else []
        chosen = read_parameters(parameters or [])
        server = ChatServer(url, api_key, timeout)
        listed = [] if model else _names(server)
        dialogue = Dialogue(model or listed[0], system, given, chosen, logprobs)
        if question is None:
            raise typer.Exit(ChatSession(server, dialogue).run(len(listed)))
        _ask_once(server, dialogue, question, as_json=as_json)
    except (ChatError, DialogueError) as error:
        raise _failure(str(error)) from None
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None


def _question(message: list[str] | None) -> str | None:
    """The only message of the chat; None for an interactive conversation."""
    if not message:
        return None if sys.stdin.isatty() else _piped()
    return "\n\n".join(_piped() if each == "-" else each for each in message)


def _piped() -> str:
    text = sys.stdin.buffer.read().decode(errors="replace").strip()
    if not text:
        raise fail("standard input has no text")
    return text


def _names(server: ChatServer) -> list[str]:
    from gateway_ops.chat.streamed_answer import ChatError  # noqa: PLC0415

    try:
        names = server.names()
    except ChatError as error:
        if error.status in _NO_LIST:
            raise ChatError(f"{error} Name a model with --model if the server does not list any.") from None
        raise
    if not names:
        raise ChatError(f"{server.http.base} lists no model that generates text; name a model with --model.")
    return names


def _ask_once(server: ChatServer, dialogue: Dialogue, question: str, *, as_json: bool) -> None:
    """Print an answer: its text as it comes, or all of it as JSON."""
    dialogue.add_question(question)
    asked = server.ask(dialogue.body())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # letters that the terminal does not have
    last = ""
    try:
        for piece in asked.pieces():
            if piece.text and not as_json:
                sys.stdout.write(harmless(piece.text))
                sys.stdout.flush()
                last = piece.text
    finally:
        if last and not last.endswith("\n"):
            sys.stdout.write("\n")
            sys.stdout.flush()
    if as_json:
        echo_json(_as_json(dialogue, asked))
        return
    answer = asked.answer
    if answer.calls:
        named = ", ".join(one_line(call["function"]["name"]) for call in answer.calls)
        raise fail(f"the model calls {named}; --json shows the arguments, and a conversation accepts the results")
    if answer.finish_reason == "length":
        typer.echo("note: the answer was cut off at its token limit", err=True)


def _as_json(dialogue: Dialogue, reply: PendingReply) -> dict[str, object]:
    answer = reply.answer
    return {
        "model": dialogue.model,
        "text": answer.text,
        "reasoning": answer.reasoning,
        "tool_calls": answer.calls,
        "finish_reason": answer.finish_reason,
        "usage": answer.usage or None,
        "first_token_s": answer.first_s and round(answer.first_s, 4),
        "tokens_per_s": answer.tokens_per_s and round(answer.tokens_per_s, 2),
        **({"logprobs": answer.logprobs} if dialogue.logprobs else {}),
    }


def _failure(message: str) -> typer.Exit:
    return fail(one_line(message))
