"""A channel on NATS itself, with nats-py (`pip install nats-py`). Each line of input stands for a message that a chat
platform hands over: session, the platform's own id of the message, words. Replies are printed as they come, until Ctrl-C.

    echo 's1 m-1 Where is order A1001?' | python3 examples/channel/channel.py

From the environment: NATS_URL, NATS_INBOX_PREFIX, AGENT, CHANNEL, STATE, a file that remembers what has been delivered, and STREAM=1 to show texts
while they are made.
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
# A user with inboxes of its own has `_INBOX_web`, or the like (docs/operations.md, "NATS permissions").
INBOX_PREFIX = os.environ.get("NATS_INBOX_PREFIX", "_INBOX").encode()
AGENT = os.environ.get("AGENT", "support")
CHANNEL = os.environ.get("CHANNEL", "python")
STREAM = os.environ.get("STREAM") == "1"
STATE = os.environ.get("STATE", os.path.expanduser(f"~/.turnwheel-channel-{CHANNEL}.db"))


# A session and a message's id become parts of subjects and keys.
ID = re.compile(r"(?!\$)[^\s*>/.\x00-\x1f\x7f]{1,128}")


async def accept(jetstream, session, message, text):
    """Publishes until NATS has acknowledged it. The id makes every repeat the same message: one turn."""
    job = {
        "type": "user_message",
        "session_id": session,
        "job_id": message,
        "agent_id": AGENT,
        "channel": CHANNEL,
        "text": text,
    }
    payload = json.dumps(job).encode()
    # The header stops a repeat within the hour at the stream already; the gateway makes it the same way.
    headers = {"Nats-Msg-Id": f"{session}:{message}"}
    while True:
        try:
            return await jetstream.publish(f"tw.jobs.{session}", payload, timeout=5, headers=headers)
        except Error as problem:  # away, or the lane is full: the same again
            print(f"{session} {message} waits: {problem}", file=sys.stderr)
            await asyncio.sleep(1)


class Delivered:
    """The replies that the user has had, for a day, which is as long as the stream keeps them."""

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
    """The texts that grow, by session: stream, next piece, turn and words. A platform that can edit a message replaces it; here
    the pieces of one session are printed on one line."""

    def __init__(self):
        self.texts = {}

    def chunk(self, reply):
        """Appends the next piece, or begins a text, also one that takes the place of what grows (`supersedes`). All other pieces
        are repeats, or their text's beginning was missed: the whole text follows."""
        session, stream, piece = reply["session_id"], reply["stream_id"], reply["text"]
        text = self.texts.get(session)
        if text and (text["stream"], text["next"]) == (stream, reply["seq"]):
            text["next"] += 1
            text["words"] += piece
            print(piece, end="", flush=True)
            return
        free = not text or text["turn"] != reply["turn_id"] or text["stream"] == reply.get("supersedes")
        if reply["seq"] == 0 and free:
            anew = "(begins anew) " if text else ""
            self.texts[session] = {"stream": stream, "next": 1, "turn": reply["turn_id"], "words": piece}
            print(f"\n{session} [chunk] {anew}{piece}", end="", flush=True)

    def whole(self, reply):
        """What is missing of a text that grows; None when the reply is another one, in whose place nothing stands any more."""
        text, words = self.texts.pop(reply["session_id"], None), reply["text"].lstrip()
        if text and text["stream"] == reply.get("stream_id") and words.startswith(text["words"]):
            return words[len(text["words"]) :]
        if text:
            print(" (does not count)", flush=True)
        return None


def deliver(reply, delivered, growing):
    """To the user, unless that has been done. A crash between the last two lines shows it twice: a platform that drops
    repeats itself should be given the reply_id. Chunks may be left out: the whole text follows them."""
    if reply["kind"] == "chunk":
        return growing.chunk(reply) if STREAM else None
    if delivered.has(reply["reply_id"]):
        return None
    missing = growing.whole(reply)
    line = f"{reply['session_id']} [{reply['kind']}] {reply['text']}" if missing is None else missing
    print(line, flush=True)
    delivered.add(reply["reply_id"])


async def replies(jetstream, delivered):
    """All replies of this channel. The consumer is durable: what comes while nobody reads waits on the stream."""
    growing = Growing()
    subject = f"tw.out.{CHANNEL}.*.reply"
    # One at a time: what is sent again after a crash comes before what follows it.
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
                    # Asked again after a while: a server that went down has forgotten that somebody waits.
                    [message] = await consumer.fetch(1, timeout=5)
                except TimeoutError:
                    continue
                deliver(json.loads(message.data), delivered, growing)
                await message.ack()
        except Error as problem:  # such as a stream that no Turnwheel process has made yet
            print(f"no replies for now: {problem}", file=sys.stderr)
            await asyncio.sleep(1)


async def messages(jetstream):
    """The lines of the input, in order."""
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
            print(f"{parts[0]} {parts[1]} is refused: not an id", file=sys.stderr)


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
