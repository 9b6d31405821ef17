//! A channel that uses NATS directly. Each input line stands for a message from a chat platform: session, the
//! platform's id of the message, and text. Replies are printed as they arrive, until Ctrl-C.
//!
//! ```sh
//! echo 's1 m-1 Where is order A1001?' | cargo run --example channel
//! ```
//!
//! `examples/channel/` has the same channel in Python, and one in bash that uses the gateway.

use anyhow::{Context as _, anyhow};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::PublishError;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions};
use clap::Parser;
use futures::StreamExt;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncBufReadExt;
use turnwheel::events::{Reply, ReplyKind, Shown, Texts};
use turnwheel::ids;
use turnwheel::settings::{Environment, Login, Nats, NatsAccess};

/// Pause between attempts.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Parser)]
struct Options {
    /// The NATS server
    #[arg(long, env = "NATS_URL", default_value = "nats://127.0.0.1:4222")]
    nats_url: String,
    /// Prefix of the reply inboxes that the NATS user may use, such as `_INBOX_web` (docs/operations.md, "NATS
    /// permissions")
    #[arg(long, env = "NATS_INBOX_PREFIX")]
    inbox_prefix: Option<String>,
    /// The agent that users talk to
    #[arg(long, default_value = "support")]
    agent: String,
    /// The channel's name, under which its replies are published
    #[arg(long, default_value = "rust")]
    channel: String,
    /// File that remembers the delivered replies
    #[arg(long, default_value = "channel.delivered")]
    state: PathBuf,
    /// Show texts while the model writes them
    #[arg(long)]
    stream: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let mut delivered = Delivered::open(&options.state)?;
    let mut growing = options.stream.then(Growing::default);
    let jetstream = jetstream::new(connect(&options).await?);
    let messages = Box::pin(messages(&jetstream, &options));
    let replies = Box::pin(replies(&jetstream, &options.channel, (&mut delivered, &mut growing)));
    tokio::try_join!(messages, replies)?;
    Ok(())
}

/// Connects to NATS. The client ignores credentials in a URL, so they are taken out of it and passed separately.
async fn connect(options: &Options) -> anyhow::Result<Client> {
    let nats = Nats { url: options.nats_url.clone(), ..Nats::default() };
    let access = NatsAccess::from_settings(&nats, &Environment::default())
        .map_err(|problems| anyhow!("{} {}", problems[0].key, problems[0].found))?;
    let mut connect = ConnectOptions::new().name("channel").retry_on_initial_connect().require_tls(access.tls);
    if let Some(prefix) = &options.inbox_prefix {
        connect = connect.custom_inbox_prefix(prefix);
    }
    let connect = match access.login {
        Login::Password { user, password } => connect.user_and_password(user, password),
        Login::Token(token) => connect.token(token),
        _ => connect,
    };
    Ok(connect.connect(access.servers).await?)
}

/// Publishes the input lines in order.
async fn messages(jetstream: &Context, options: &Options) -> anyhow::Result<()> {
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let mut parts = line.trim().splitn(3, ' ');
        let (Some(session), Some(message), Some(text)) = (parts.next(), parts.next(), parts.next()) else { continue };
        // The ids become parts of subjects and keys.
        if ids::is_legal(session) && ids::is_legal_job(message) {
            accept(jetstream, options, session, message, text).await;
        } else {
            eprintln!("{session} {message} refused: not a valid id");
        }
    }
    Ok(())
}

/// Publishes until NATS has acknowledged the message. Repeats have the same id, so there is one turn.
async fn accept(jetstream: &Context, options: &Options, session: &str, message: &str, text: &str) {
    let job = json!({
        "type": "user_message", "session_id": session, "job_id": message, "agent_id": options.agent,
        "channel": options.channel, "text": text,
    });
    // With this header the stream drops repeats within its window (one hour). The gateway uses the same value.
    let message_id = format!("{session}:{message}");
    let publish = PublishMessage::build().payload(job.to_string().into()).message_id(&message_id);
    // NATS is unreachable, or the lane is full: publish the same message again.
    while let Err(problem) = send(jetstream, session, publish.clone()).await {
        eprintln!("{session} {message} not accepted, retrying: {problem}");
        tokio::time::sleep(PAUSE).await;
    }
}

async fn send(jetstream: &Context, session: &str, publish: PublishMessage) -> Result<(), PublishError> {
    jetstream.send_publish(format!("tw.jobs.{session}"), publish).await?.await.map(|_| ())
}

/// Delivers all replies of this channel, and reconnects forever.
async fn replies(
    jetstream: &Context,
    channel: &str,
    (delivered, growing): (&mut Delivered, &mut Option<Growing>),
) -> anyhow::Result<()> {
    loop {
        // Fails, for example, if no Turnwheel process has created the stream yet.
        if let Err(problem) = read(jetstream, channel, (&mut *delivered, &mut *growing)).await {
            eprintln!("cannot read replies, retrying: {problem:#}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Reads replies from a durable consumer: replies that arrive while no reader is connected wait on the stream.
async fn read(
    jetstream: &Context,
    channel: &str,
    (delivered, growing): (&mut Delivered, &mut Option<Growing>),
) -> anyhow::Result<()> {
    let name = format!("channel-{channel}");
    let config = pull::Config {
        durable_name: Some(name.clone()),
        filter_subject: format!("tw.out.{channel}.*.reply"),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_secs(10),
        // One at a time, so that a redelivered reply comes before its successors.
        max_ack_pending: 1,
        ..pull::Config::default()
    };
    let stream = jetstream.get_stream("TW_OUT").await?;
    let consumer: PullConsumer = stream.get_or_create_consumer(&name, config).await?;
    let mut messages = consumer.messages().await?;
    while let Some(message) = messages.next().await {
        let message = message?;
        deliver(&serde_json::from_slice(&message.payload)?, delivered, growing.as_mut())?;
        message.ack().await.map_err(|problem| anyhow!("no acknowledgement: {problem}"))?;
    }
    Ok(())
}

/// Shows a reply to the user, unless it was delivered before. A crash between the last two lines shows it twice: pass
/// the `reply_id` to a platform that drops repeats. Chunks are optional, because the whole text follows them.
fn deliver(reply: &Reply, delivered: &mut Delivered, growing: Option<&mut Growing>) -> anyhow::Result<()> {
    if delivered.known.contains(&reply.reply_id) {
        return Ok(());
    }
    let shown = match growing {
        Some(growing) => growing.shown(reply),
        None if reply.kind == ReplyKind::Chunk => None,
        None => Some(whole(reply)),
    };
    if let Some(shown) = shown {
        print!("{shown}");
        stdout().flush()?;
    }
    if reply.kind == ReplyKind::Chunk { Ok(()) } else { delivered.add(&reply.reply_id) }
}

fn whole(reply: &Reply) -> String {
    format!("{} [{}] {}\n", reply.session_id, reply.kind.as_str(), reply.text)
}

/// The growing texts, by session. A platform that can edit a message replaces it; this example prints chunks on one
/// line.
#[derive(Default)]
struct Growing(HashMap<String, Texts>);

impl Growing {
    fn shown(&mut self, reply: &Reply) -> Option<String> {
        let shown = self.0.entry(reply.session_id.clone()).or_default().take(reply);
        Some(match shown {
            Shown::Nothing => return None,
            Shown::Begins { anew } => {
                let anew = if anew { "(starts over) " } else { "" };
                format!("\n{} [chunk] {anew}{}", reply.session_id, reply.text)
            }
            Shown::GoesOn => reply.text.clone(),
            Shown::Whole { known: 0, anew } => {
                let void = if anew { " (discarded)\n" } else { "" };
                format!("{void}{}", whole(reply))
            }
            Shown::Whole { known, .. } => format!("{}\n", &reply.text[known..]),
        })
    }
}

/// The delivered replies. A long-running channel can forget them after a day, as the stream does.
struct Delivered {
    known: HashSet<String>,
    file: File,
}

impl Delivered {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let opened = OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = opened.with_context(|| format!("cannot open {}", path.display()))?;
        let known = BufReader::new(&file).lines().collect::<Result<_, _>>()?;
        Ok(Self { known, file })
    }

    fn add(&mut self, reply_id: &str) -> anyhow::Result<()> {
        writeln!(self.file, "{reply_id}")?;
        self.known.insert(reply_id.to_owned());
        Ok(())
    }
}
