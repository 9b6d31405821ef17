"""A channel that uses NATS directly, with nats-py (`pip install nats-py`). Each input line stands for a message from a chat
platform: session, the platform's id of the message, and text. Replies are printed as they arrive, until Ctrl-C.

    echo 's1 m-1 Where is order A1001?' | python3 examples/channel/channel.py

Environment: NATS_URL, NATS_INBOX_PREFIX, AGENT, CHANNEL, STATE (a file that remembers the delivered replies), and STREAM=1
to show texts while the model writes them.
"""

import asyncio
import json
import os
import re
import sqlite3
import sys
import threading

import nats
from nats.errors import Error, TimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

NATS_URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
# A NATS user may have its own inbox prefix, such as `_INBOX_web` (docs/operations.md, "NATS permissions").
INBOX_PREFIX = os.environ.get("NATS_INBOX_PREFIX", "_INBOX").encode()
AGENT = os.environ.get("AGENT", "support")
CHANNEL = os.environ.get("CHANNEL", "python")
STREAM = os.environ.get("STREAM") == "1"
STATE = os.environ.get("STATE", os.path.expanduser(f"~/.turnwheel-channel-{CHANNEL}.db"))


# The ids of a session and a message become parts of subjects and keys.
ID = re.compile(r"(?!\$)[^\s*>/.\x00-\x1f\x7f]{1,128}")


async def accept(jetstream, session, message, text):
    """Publishes until NATS has acknowledged the message. Repeats have the same id, so there is one turn."""
    job = {
        "type": "user_message",
        "session_id": session,
        "job_id": message,
        "agent_id": AGENT,
        "channel": CHANNEL,
        "text": text,
    }
    payload = json.dumps(job).encode()
    # With this header the stream drops repeats within its window (one hour). The gateway uses the same value.
    headers = {"Nats-Msg-Id": f"{session}:{message}"}
    while True:
        try:
            return await jetstream.publish(f"tw.jobs.{session}", payload, timeout=5, headers=headers)
        except Error as problem:  # NATS is unreachable, or the lane is full: publish the same message again
            print(f"{session} {message} not accepted, retrying: {problem}", file=sys.stderr)
            await asyncio.sleep(1)


class Delivered:
    """The delivered replies of the last day. The stream does not keep replies for longer."""

    def __init__(self, path):
        self.db = sqlite3.connect(path)
        self.db.execute("CREATE TABLE IF NOT EXISTS delivered (reply_id TEXT PRIMARY KEY, at INTEGER)")
        self.db.execute("DELETE FROM delivered WHERE at < unixepoch() - 86400")
        self.db.commit()

    def has(self, reply_id):
        found = self.db.execute("SELECT 1 FROM delivered WHERE reply_id = ?", (reply_id,))
        return found.fetchone() is not None

    def add(self, reply_id):
        with self.db:
            self.db.execute("INSERT OR IGNORE INTO delivered VALUES (?, unixepoch())", (reply_id,))


class Growing:
    """The growing text of each session: stream, next chunk, turn and text so far. A platform that can edit a message replaces
    it; this example prints the chunks of a session on one line."""

    def __init__(self):
        self.texts = {}

    def chunk(self, reply):
        """Appends the next chunk, or starts a text, which may supersede the growing one (`supersedes`). All other chunks are
        repeats, or the start of their text was missed; the whole text follows."""
        session, stream, piece = reply["session_id"], reply["stream_id"], reply["text"]
        text = self.texts.get(session)
        if text and (text["stream"], text["next"]) == (stream, reply["seq"]):
            text["next"] += 1
            text["words"] += piece
            print(piece, end="", flush=True)
            return
        free = not text or text["turn"] != reply["turn_id"] or text["stream"] == reply.get("supersedes")
        if reply["seq"] == 0 and free:
            anew = "(starts over) " if text else ""
            self.texts[session] = {"stream": stream, "next": 1, "turn": reply["turn_id"], "words": piece}
            print(f"\n{session} [chunk] {anew}{piece}", end="", flush=True)

    def whole(self, reply):
        """Returns the missing rest of the growing text; None if the reply is not that text, which is then discarded."""
        text, words = self.texts.pop(reply["session_id"], None), reply["text"].lstrip()
        if text and text["stream"] == reply.get("stream_id") and words.startswith(text["words"]):
            return words[len(text["words"]) :]
        if text:
            print(" (discarded)", flush=True)
        return None


def deliver(reply, delivered, growing):
    """Shows a reply to the user, unless it was delivered before. A crash between the last two lines shows it twice: pass the
    reply_id to a platform that drops repeats. Chunks are optional, because the whole text follows them."""
    if reply["kind"] == "chunk":
        return growing.chunk(reply) if STREAM else None
    if delivered.has(reply["reply_id"]):
        return None
    missing = growing.whole(reply)
    line = f"{reply['session_id']} [{reply['kind']}] {reply['text']}" if missing is None else missing
    print(line, flush=True)
    delivered.add(reply["reply_id"])


async def replies(jetstream, delivered):
    """Delivers all replies of this channel from a durable consumer, which keeps replies while no reader is connected."""
    growing = Growing()
    subject = f"tw.out.{CHANNEL}.*.reply"
    # One at a time, so that a redelivered reply comes before its successors.
    config = ConsumerConfig(
        durable_name=f"channel-{CHANNEL}",
        filter_subject=subject,
        deliver_policy=DeliverPolicy.ALL,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=10,
        max_ack_pending=1,
    )
    while True:
        try:
            consumer = await jetstream.pull_subscribe(subject, config.durable_name, "TW_OUT", config)
            while True:
                try:
                    # With a timeout, because a restarted server has forgotten the request.
                    [message] = await consumer.fetch(1, timeout=5)
                except TimeoutError:
                    continue
                deliver(json.loads(message.data), delivered, growing)
                await message.ack()
        except Error as problem:  # for example, no Turnwheel process has created the stream yet
            print(f"cannot read replies, retrying: {problem}", file=sys.stderr)
            await asyncio.sleep(1)


async def messages(jetstream):
    """Publishes the input lines in order."""
    loop, lines = asyncio.get_running_loop(), asyncio.Queue()

    def read():
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)

    threading.Thread(target=read, daemon=True).start()
    while True:
        parts = (await lines.get()).strip().split(maxsplit=2)
        if len(parts) < 3:
            continue
        if all(ID.fullmatch(part) for part in parts[:2]):
            await accept(jetstream, *parts)
        else:
            print(f"{parts[0]} {parts[1]} refused: not a valid id", file=sys.stderr)


async def report(problem):
    print(f"NATS: {problem}", file=sys.stderr)


async def main():
    connection = await nats.connect(NATS_URL, name="channel", max_reconnect_attempts=-1, error_cb=report, inbox_prefix=INBOX_PREFIX)
    jetstream = connection.jetstream()
    await asyncio.gather(messages(jetstream), replies(jetstream, Delivered(STATE)))


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
