//! Decides about a message whose sequence is not above the session's position. Either it was processed, or the stream
//! was replaced or has lost its last messages (after a failure of a machine, or when a backup was restored). A
//! processed message is acknowledged. Any other message is new, and the position of its session is set back for it.

use super::outbox::publish;
use super::stop::Stop;
use super::{WorkerState, intake};
use base::metrics::metrics;
use storage::queue::{Message, StreamState};
use storage::store::records::{Rewind, SessionQuery};
use tracing::{debug, warn};
use types::job::Job;
use types::session::Session;
use types::timestamp::Timestamp;

/// Number of sessions that are compared with the stream when a worker starts.
const COMPARED_SESSIONS: usize = 20;

/// The result of [`check_standing`].
pub(super) enum Standing {
    /// The message was processed, and the outbox of its turn is published.
    Handled,
    /// The message is new. Its lane must be acquired for the stream with this creation time.
    New { stream: Timestamp, rewind: Option<Rewind> },
}

/// Finds out whether the session has processed `wake`, the message of `job`.
pub(super) async fn check_standing(shared: &WorkerState, wake: &Message, job: &Job) -> Result<Standing, Stop> {
    let Some(session) = shared.store().session(&wake.session_id).await? else {
        let problem = format!("session `{}` was deleted while its message was processed", wake.session_id);
        return Err(Stop::Infrastructure(problem.into()));
    };
    let stream = shared.queue().stream().await?;
    let same = session.stream.is_none_or(|known| known == stream.created_at);
    if same && session.last_seq < wake.seq {
        return match wake.stream == stream.created_at {
            true => Err(Stop::Infrastructure("the store returned a session from before its last commit".into())),
            // The delivery carries an outdated creation time of the stream.
            false => Ok(Standing::New { stream: stream.created_at, rewind: None }),
        };
    }
    if !same || session.last_seq == wake.seq {
        // The worker that committed the turn may have died before it published the outbox, and the session no longer
        // has the message for which it would be published.
        publish(shared, wake, session.outbox.clone().into()).await?;
    }
    if !is_new(&session, &stream, wake, Some(job)) {
        return Ok(Standing::Handled);
    }
    if let Some(lease) = session.lease.as_ref().filter(|lease| shared.clock().now() < lease.until) {
        // The lease holder completes its turn first.
        return Err(Stop::Busy(lease.until));
    }
    let to = last_handled(shared, &session, &stream, wake).await?;
    let rewind = Rewind { stream: session.stream, last_seq: session.last_seq, to };
    Ok(Standing::New { stream: stream.created_at, rewind: Some(rewind) })
}

/// Logs and counts that the position of a session was set back for `wake`.
pub(super) fn log_rewind(wake: &Message, stream: Timestamp, found: &Rewind) {
    let cause = if found.stream.is_none_or(|known| known == stream) { "tail" } else { "stream" };
    warn!(
        session_id = wake.session_id,
        seq = wake.seq,
        last_seq = found.last_seq,
        stream = %stream,
        former_stream = found.stream.map(tracing::field::display),
        cause,
        "the job stream was replaced or truncated; the session's position was set back and its new messages are processed"
    );
    metrics().record_rewind(cause);
}

/// Whether the session has not processed a message whose sequence is not above its position.
fn is_new(session: &Session, stream: &StreamState, message: &Message, job: Option<&Job>) -> bool {
    if job.is_some_and(|job| is_repeat(session, message, job)) {
        return false;
    }
    if message.at > session.last_at.unwrap_or(session.updated_at) {
        return true;
    }
    match session.stream.is_some_and(|known| known != stream.created_at) {
        // A copied stream, such as a promoted mirror, contains messages that are older than the stream itself.
        true => message.at >= stream.created_at,
        // A server with a slow clock stored the message after the stream had lost its last messages.
        false => stream.last_seq < session.last_seq && !session.forgets_jobs(),
    }
}

/// Whether the session has processed the job already. A job id that was derived from the sequence does not count for a
/// message that was stored later: a stream that lost its last messages assigns their sequences again.
pub(super) fn is_repeat(session: &Session, message: &Message, job: &Job) -> bool {
    let later = session.last_at.is_some_and(|last_at| message.at > last_at);
    session.has_handled(&job.job_id) && !(later && job.job_id == message.default_id)
}

/// The sequence after which the lane's new messages start, at most that of `wake`.
async fn last_handled(
    shared: &WorkerState,
    session: &Session,
    stream: &StreamState,
    wake: &Message,
) -> Result<u64, Stop> {
    let mut after = 0;
    while let Some(message) = shared.queue().next_in_lane(&wake.session_id, after, wake.seq).await?
        && message.seq < wake.seq
        && !is_new(session, stream, &message, intake::decode(&message).ok().as_ref())
    {
        after = message.seq;
    }
    Ok(after)
}

/// Compares the stream with the sessions that changed last, and logs a difference.
pub(super) async fn compare(shared: &WorkerState) {
    let query = SessionQuery { limit: COMPARED_SESSIONS, ..SessionQuery::default() };
    let (stream, sessions) = futures::join!(shared.queue().stream(), shared.store().sessions(query));
    match (stream, sessions) {
        (Ok(stream), Ok(sessions)) => {
            if let Some(difference) = difference(&stream, &sessions) {
                warn!("{difference}");
            }
        }
        (stream, sessions) => {
            let problems = (stream.err().map(|error| error.to_string()), sessions.err().map(|error| error.to_string()));
            debug!(?problems, "could not compare the job stream with the sessions");
        }
    }
}

/// Describes a difference between the job stream and the sessions that changed last, for the log and for `doctor`.
/// `None` if they match.
pub fn difference(stream: &StreamState, sessions: &[Session]) -> Option<String> {
    let other = sessions.iter().find(|session| session.stream.is_some_and(|known| known != stream.created_at));
    if let Some(Session { session_id, stream: Some(known), .. }) = other {
        return Some(format!(
            "session `{session_id}` was last handled in a job stream that was created at {known}, but this one was \
             created at {}: jobs that waited in the former one are lost",
            stream.created_at
        ));
    }
    let same = sessions.iter().filter(|session| session.stream.is_some());
    let ahead = same.max_by_key(|session| session.last_seq).filter(|session| session.last_seq > stream.last_seq)?;
    let (session_id, last_seq) = (&ahead.session_id, ahead.last_seq);
    Some(format!(
        "session `{session_id}` has processed message {last_seq}, but the job stream ends at {}: the stream has lost \
         its last messages",
        stream.last_seq
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use types::job::{JobBody, UserMessage};
    use types::session::RECENT_JOBS;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn message(seq: u64, taken: i64) -> Message {
        Message {
            session_id: "s".into(),
            seq,
            stream: at(0),
            payload: Default::default(),
            msg_id: None,
            default_id: format!("0-{seq}"),
            at: at(taken),
            trace: None,
        }
    }

    fn job(job_id: &str) -> Job {
        let body = JobBody::UserMessage(UserMessage::default());
        Job { session_id: "s".into(), job_id: job_id.into(), body }
    }

    fn session(recent: &[&str]) -> Session {
        let recent_jobs = Arc::new(recent.iter().map(|id| (*id).to_owned()).collect());
        let (stream, last_at) = (Some(at(0)), Some(at(50)));
        Session { stream, last_seq: 5, last_at, recent_jobs, ..Session::new("s", at(1)) }
    }

    #[test]
    fn a_message_is_new_that_the_stream_took_after_the_last_one_handled() {
        let (session, stream) = (session(&["m-1", "0-5"]), StreamState { created_at: at(0), last_seq: 9 });
        let is_new = |seq, taken, id: &str| is_new(&session, &stream, &message(seq, taken), Some(&job(id)));
        assert!(!is_new(5, 50, "m-9"), "the last processed message, which led to no turn");
        assert!(!is_new(3, 30, "m-0"), "an old message");
        assert!(is_new(3, 51, "m-9"), "its sequence was assigned again");
        assert!(!is_new(3, 51, "m-1"), "published again under the id of a processed job");
        assert!(is_new(5, 51, "0-5"), "a default id is assigned again, too");
        assert!(!is_new(5, 50, "0-5"));
    }

    #[test]
    fn a_server_whose_clock_is_behind_loses_nothing_where_it_is_certain_that_the_end_is_lost() {
        let (known, stream) = (session(&["m-1"]), StreamState { created_at: at(0), last_seq: 4 });
        assert!(is_new(&known, &stream, &message(4, 40), Some(&job("m-9"))));
        let many: Vec<String> = (0..RECENT_JOBS).map(|n| format!("j-{n}")).collect();
        let full = Session { recent_jobs: Arc::new(many), ..known };
        assert!(
            !is_new(&full, &stream, &message(4, 40), Some(&job("m-9"))),
            "the message may have been processed long ago"
        );
    }

    #[test]
    fn in_another_stream_all_is_new_but_what_was_copied_into_it() {
        let (session, stream) = (session(&["m-1"]), StreamState { created_at: at(40), last_seq: 4 });
        assert!(is_new(&session, &stream, &message(1, 45), Some(&job("m-9"))), "although its server's clock is slow");
        assert!(!is_new(&session, &stream, &message(1, 45), Some(&job("m-1"))));
        assert!(!is_new(&session, &stream, &message(3, 30), Some(&job("m-0"))), "stored before the stream was created");
        assert!(is_new(&session, &stream, &message(6, 60), None));
    }

    #[test]
    fn a_session_of_an_earlier_version_goes_by_when_it_changed_last() {
        let old = Session { stream: None, last_at: None, updated_at: at(50), ..session(&[]) };
        let stream = StreamState { created_at: at(0), last_seq: 9 };
        assert!(!is_new(&old, &stream, &message(3, 30), Some(&job("m-9"))));
        assert!(is_new(&old, &stream, &message(3, 60), Some(&job("m-9"))));
    }

    #[test]
    fn stream_and_sessions_are_compared() {
        let stream = |made, last_seq| StreamState { created_at: at(made), last_seq };
        let sessions = [session(&[]), Session { stream: None, last_seq: 99, ..session(&[]) }];
        assert_eq!(difference(&stream(0, 5), &sessions), None);
        assert!(difference(&stream(0, 4), &sessions).unwrap().contains("has lost its last messages"));
        assert!(difference(&stream(7, 5), &sessions).unwrap().contains("was created at"));
    }
}
