//! A channel on NATS itself. Each line of input stands for a message that a chat platform hands over: session, the
//! platform's own id of the message, words. Replies are printed as they come, until Ctrl-C.
//!
//! ```sh
//! echo 's1 m-1 Where is order A1001?' | cargo run --example channel
//! ```
//!
//! `examples/channel/` has the same in Python, and over the gateway in bash.

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

/// Before the next try.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Parser)]
struct Options {
    /// The NATS server
    #[arg(long, env = "NATS_URL", default_value = "nats://127.0.0.1:4222")]
    nats_url: String,
    /// Where the server answers, such as `_INBOX_web` (docs/operations.md, "NATS permissions")
    #[arg(long, env = "NATS_INBOX_PREFIX")]
    inbox_prefix: Option<String>,
    /// The agent that users talk to
    #[arg(long, default_value = "support")]
    agent: String,
    /// The channel's name, under which its replies are published
    #[arg(long, default_value = "rust")]
    channel: String,
    /// A file that remembers what has been delivered
    #[arg(long, default_value = "channel.delivered")]
    state: PathBuf,
    /// Show texts while they are made
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

/// The client ignores a user and password, or a token, that stand in an address: they are taken out of it.
async fn connect(options: &Options) -> anyhow::Result<Client> {
    let nats = Nats { url: options.nats_url.clone(), ..Nats::default() };
    let access = NatsAccess::of(&nats, &Environment::default())
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

/// The lines of the input, in order.
async fn messages(jetstream: &Context, options: &Options) -> anyhow::Result<()> {
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let mut parts = line.trim().splitn(3, ' ');
        let (Some(session), Some(message), Some(text)) = (parts.next(), parts.next(), parts.next()) else { continue };
        // An id becomes a part of subjects and keys.
        if ids::is_legal(session) && ids::is_legal_job(message) {
            accept(jetstream, options, session, message, text).await;
        } else {
            eprintln!("{session} {message} is refused: not an id");
        }
    }
    Ok(())
}

/// Publishes until NATS has acknowledged it. The id makes every repeat the same message: one turn.
async fn accept(jetstream: &Context, options: &Options, session: &str, message: &str, text: &str) {
    let job = json!({
        "type": "user_message", "session_id": session, "job_id": message, "agent_id": options.agent,
        "channel": options.channel, "text": text,
    });
    // The header stops a repeat within the hour at the stream already; the gateway makes it the same way.
    let message_id = format!("{session}:{message}");
    let publish = PublishMessage::build().payload(job.to_string().into()).message_id(&message_id);
    // Away, or the lane is full: the same again.
    while let Err(problem) = send(jetstream, session, publish.clone()).await {
        eprintln!("{session} {message} waits: {problem}");
        tokio::time::sleep(PAUSE).await;
    }
}

async fn send(jetstream: &Context, session: &str, publish: PublishMessage) -> Result<(), PublishError> {
    jetstream.send_publish(format!("tw.jobs.{session}"), publish).await?.await.map(|_| ())
}

/// All replies of this channel, for ever.
async fn replies(
    jetstream: &Context,
    channel: &str,
    (delivered, growing): (&mut Delivered, &mut Option<Growing>),
) -> anyhow::Result<()> {
    loop {
        // Such as a stream that no Turnwheel process has made yet.
        if let Err(problem) = read(jetstream, channel, (&mut *delivered, &mut *growing)).await {
            eprintln!("no replies for now: {problem:#}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The consumer is durable: what comes while nobody reads waits on the stream.
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
        // One at a time: what is sent again after a crash comes before what follows it.
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

/// To the user, unless that has been done. A crash between the last two lines shows it twice: a platform that drops repeats
/// itself should be given the `reply_id`. Chunks may be left out: the whole text follows them.
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

/// The texts that grow, by session. A platform that can edit a message replaces it; here the pieces of one are printed on one line.
#[derive(Default)]
struct Growing(HashMap<String, Texts>);

impl Growing {
    fn shown(&mut self, reply: &Reply) -> Option<String> {
        let shown = self.0.entry(reply.session_id.clone()).or_default().take(reply);
        Some(match shown {
            Shown::Nothing => return None,
            Shown::Begins { anew } => {
                let anew = if anew { "(begins anew) " } else { "" };
                format!("\n{} [chunk] {anew}{}", reply.session_id, reply.text)
            }
            Shown::GoesOn => reply.text.clone(),
            Shown::Whole { known: 0, anew } => {
                let void = if anew { " (does not count)\n" } else { "" };
                format!("{void}{}", whole(reply))
            }
            Shown::Whole { known, .. } => format!("{}\n", &reply.text[known..]),
        })
    }
}

/// The replies that users have had. A channel that runs for long forgets them after a day, as the stream does.
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
