"""The conversation of ``gateway chat``: the user's lines and commands, and the answers."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from rich.console import Console
from rich.text import Text

from gateway.text.harmless import harmless, one_line
from gateway_ops.chat.chat_server import ChatServer, PendingReply
from gateway_ops.chat.dialogue import Dialogue, DialogueError, read_parameters
from gateway_ops.chat.streamed_answer import ChatError
from gateway_ops.cli.chat_display import ChatDisplay

_INTERRUPTED = 130
_QUOTES = '"""'
_LONGEST_NAME = 64
_HELP = """\
/system TEXT     set the system prompt; /system alone shows it, /system - removes it
/model NAME      talk to another model; /model alone lists the models of the server
/retry           ask for another answer to the last message, also after an error
/undo            remove the last message and its answer
/set NAME=VALUE  set a parameter of the next requests; /set NAME removes it, /set alone lists them
/clear           forget the conversation; the system prompt stays
/save FILE       write the conversation to a new file, as the body of a request
/help            show this
/quit            leave; Ctrl-D, or Ctrl-C twice, does the same
Ctrl-C stops an answer. Lines between \"\"\" and \"\"\" are one message; //text sends /text.\
"""


class _EndOfInputError(Exception):
    """Nothing more is typed."""


class ChatSession:
    """A conversation with a user.

    Args:
        server: the server.
        dialogue: the conversation, which commands change.
    """

    def __init__(self, server: ChatServer, dialogue: Dialogue) -> None:
        self._server = server
        self._dialogue = dialogue
        self._console = Console(highlight=False)
        self._display = ChatDisplay(self._console, tint=dialogue.logprobs)
        self._interrupted = False  # since the last message: a second Ctrl-C ends the program
        self._removed = ""  # a message that is no longer in the dialogue, because it got no answer
        self._commands = {
            "/system": self._system,
            "/model": self._model,
            "/retry": self._retry,
            "/undo": self._undo,
            "/set": self._set,
            "/clear": self._clear,
            "/reset": self._clear,
            "/save": self._save,
            "/help": self._help,
        }

    def run(self, listed: int) -> int:
        """Talk until the user leaves; returns the exit status.

        Args:
            listed: number of models of which the first was chosen; 0 where the user has named one.
        """
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401, PLC0415 - gives lines that can be edited, and those before
        first = f", the first of {listed} models" if listed > 1 else ""
        self._say(f"{self._dialogue.model}{first}, at {self._server.http.base}. /help lists the commands.")
        if self._dialogue.logprobs:
            self._display.legend()
        while (status := self._step()) is None:
            pass
        return status

    def _step(self) -> int | None:
        """Read a line and do what it says; the exit status where the user leaves."""
        try:
            line = self._read("> ")
            self._interrupted = False
            if line in {"/quit", "/exit"}:
                return 0
            self._take(line)
        except _EndOfInputError:
            self._console.out("")
            return 0
        except KeyboardInterrupt:
            self._console.out("")
            if self._interrupted:
                return _INTERRUPTED
            self._interrupted = True
            self._say("Ctrl-C again, or /quit, leaves.")
        return None

    def _take(self, line: str) -> None:
        """Do what a line says."""
        if not line.strip():
            return
        if not line.startswith("/") or line.startswith("//"):
            self._talk(line.removeprefix("/") if line.startswith("//") else line)
            return
        name, _, rest = line.partition(" ")
        command = self._commands.get(name)
        if command is None:
            self._say(f"Unknown command {name}; /help lists the commands.")
        else:
            command(rest.strip())

    def _talk(self, text: str) -> None:
        """Have a message answered, and the results of the calls that the answer makes."""
        messages = self._dialogue.messages
        before = len(messages)
        self._dialogue.add_question(text)
        try:
            while self._answered(before):
                for call in messages[-1]["tool_calls"]:
                    self._dialogue.give(call, self._result(call))
        except ChatError as error:
            del messages[before:]
            self._display.error(str(error))
        except (KeyboardInterrupt, _EndOfInputError):  # at a result
            del messages[before:]
            self._console.out("")
            self._say("This message was removed from the conversation.")
            raise
        finally:
            self._removed = "" if len(messages) > before else text

    def _answered(self, before: int) -> bool:
        """Show an answer; whether it asks for results of calls.

        Args:
            before: how many messages to go back to, where it is stopped before it says anything.
        """
        asked = self._server.ask(self._dialogue.body())
        try:
            self._show(asked)
        except KeyboardInterrupt:
            self._interrupted = True
            self._display.end()
            self._say("stopped")
            asked.answer.calls.clear()
            if asked.answer.text:
                self._dialogue.add_answer(asked.answer)
            else:
                del self._dialogue.messages[before:]
            return False
        self._dialogue.add_answer(asked.answer)
        self._display.summary(asked.answer)
        return bool(asked.answer.calls)

    def _show(self, reply: PendingReply) -> None:
        with self._display.waiting(), contextlib.closing(reply.pieces()) as pieces:
            try:
                for piece in pieces:
                    self._display.piece(piece)
            finally:
                self._display.end()

    def _result(self, call: dict[str, dict[str, str]]) -> str:
        """Let the user play the tool."""
        name = one_line(call["function"]["name"])[:_LONGEST_NAME]
        self._display.call(name, call["function"]["arguments"])
        return self._read(f"result of {name}> ")

    def _read(self, prompt: str) -> str:
        """A message: a line, or the lines between two marks.

        Raises:
            _EndOfInputError: the input ended before a message.
            KeyboardInterrupt: the user would rather not.
        """
        line = self._line(prompt)
        if not line.startswith(_QUOTES):
            return line.strip()
        lines = [line.removeprefix(_QUOTES)]
        while not lines[-1].rstrip().endswith(_QUOTES):
            lines.append(self._line("... "))
        return "\n".join(lines).rstrip().removesuffix(_QUOTES).strip("\n")

    @staticmethod
    def _line(prompt: str) -> str:
        try:
            return input(prompt).encode(errors="replace").decode()
        except UnicodeDecodeError:
            return ""
        except EOFError:
            raise _EndOfInputError from None

    def _system(self, text: str) -> None:
        if text:
            self._dialogue.system = "" if text == "-" else text
        self._say(self._dialogue.system or "No system prompt is set.")

    def _model(self, name: str) -> None:
        try:
            listed = self._server.names()
        except ChatError as error:
            listed = []
            self._display.error(str(error))
        if not name:
            for each in listed:
                self._say(f"{'*' if each == self._dialogue.model else ' '} {each}")
            return
        self._dialogue.model = name
        known = "" if name in listed else ", which the server does not list"
        self._say(f"Talking to {name}{known}.")

    def _retry(self, _: str) -> None:
        if text := self._removed or self._dialogue.take_back():
            self._talk(text)
        else:
            self._say("There is no message.")

    def _undo(self, _: str) -> None:
        text, self._removed = self._dialogue.take_back(), ""
        self._say(f"Removed: {one_line(text)}" if text else "There is no message.")

    def _set(self, word: str) -> None:
        parameters = self._dialogue.parameters
        try:
            parameters |= read_parameters([word] if "=" in word else [])
        except DialogueError as error:
            self._display.error(str(error))
            return
        if "=" not in word:
            parameters.pop(word, None)
        lines = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in parameters.items()]
        self._say("\n".join(lines) or "No parameter is set.")

    def _clear(self, _: str) -> None:
        self._dialogue.messages.clear()
        self._say("Forgotten.")

    def _save(self, name: str) -> None:
        if not name:
            self._say("/save FILE: name a file.")
            return
        try:
            self._dialogue.save(Path(name).expanduser())
        except (OSError, RuntimeError, ValueError) as error:  # also a ~user that is none, a name with a zero byte
            reason = error.strerror if isinstance(error, OSError) else error
            self._display.error(f"{name} cannot be written: {str(reason).removesuffix('.')}.")
        else:
            self._say(f"Saved to {name}.")

    def _help(self, _: str) -> None:
        self._say(_HELP)

    def _say(self, text: str) -> None:
        self._console.print(Text(harmless(text), "dim"), soft_wrap=True)
