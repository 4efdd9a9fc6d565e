"""One answer as it grows: updates of the engine in, pieces of text out. No HTTP."""

import logging
from typing import NamedTuple

from tokenpool_engine.api.errors import GenerationFailed
from tokenpool_engine.api.text import Detokenizer
from tokenpool_engine.request import Finish, Picked
from tokenpool_engine.stream import Stream, Update

log = logging.getLogger(__name__)


class Piece(NamedTuple):
    """What updates brought. The last one has `finish`."""

    text: str
    tokens: tuple[int, ...] = ()
    picked: tuple[Picked, ...] = ()
    finish: Finish | None = None


class Answer:
    """One of a request's choices."""

    def __init__(self, index: int, stream: Stream, detokenizer: Detokenizer) -> None:
        self.index, self.stream = index, stream
        self._detokenizer = detokenizer
        self.tokens = 0
        """Tokens of the answer so far; those of another shard before do not count."""

    def take(self) -> Piece | None:
        """Everything that waits. Raises GenerationFailed."""
        update = self.stream.updates.take()
        if update is None or self.stream.ended:
            return None
        if update.finish in (Finish.ERROR, Finish.CANCELLED):
            self.stream.ended = update.finish
            raise GenerationFailed(update.error or "the request was cancelled")
        try:
            return self._piece(update)
        except Exception as error:
            # Tokenizers come with the model. The headers may be out already: the stream itself must say that it ends.
            log.exception("tokens could not be made text")
            self.stream.ended = Finish.ERROR
            raise GenerationFailed(f"the answer's tokens could not be made text: {type(error).__name__}") from error

    def _piece(self, update: Update) -> Piece:
        detokenizer = self._detokenizer
        before = detokenizer.taken
        text = detokenizer.push(update.tokens)
        if update.finish:
            text += detokenizer.finish()
        taken = detokenizer.taken - before
        self.tokens += taken
        self.stream.ended = Finish.STOP if detokenizer.stopped else update.finish
        return Piece(text, update.tokens[:taken], update.picked[:taken], self.stream.ended)
