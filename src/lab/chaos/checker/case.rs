//! The facts of one session, and the turns that follow from them.

use crate::chaos::agents::Manner;
use crate::chaos::conversations::ScriptMessage;
use crate::chaos::evidence::{ActionCall, Letter, RunEvidence, SeenDialogue, SeenStatus, SentInvalidJob, SentMessage};
use std::collections::{BTreeMap, HashMap};
use types::authoring::Event;
use types::event::Reply;
use types::job::JobBody;
use types::outcome::Outcome;
use types::session::Session;
use types::turn::TurnRecord;

/// The facts of one session.
#[derive(Default)]
pub(super) struct Case<'a> {
    pub(super) session_id: &'a str,
    /// In the order of publication.
    pub(super) sent: Vec<&'a SentMessage>,
    pub(super) bad: Vec<&'a SentInvalidJob>,
    pub(super) session: Option<&'a Session>,
    pub(super) records: HashMap<&'a str, &'a TurnRecord>,
    pub(super) replies: Vec<&'a Reply>,
    pub(super) statuses: Vec<&'a SeenStatus>,
    pub(super) letters: Vec<&'a Letter>,
    pub(super) calls: Vec<&'a ActionCall>,
    pub(super) dialogue: Option<&'a SeenDialogue>,
    /// Events of the authoring dialogue.
    pub(super) authoring: Vec<&'a Event>,
    /// In the order of the lane.
    pub(super) turns: Vec<Turn<'a>>,
}

/// One turn of the lane.
pub(super) struct Turn<'a> {
    pub(super) turn_id: &'a str,
    pub(super) record: Option<&'a TurnRecord>,
    pub(super) of: Of<'a>,
}

/// The origin of a turn.
pub(super) enum Of<'a> {
    /// A user's messages; more than one if they were merged.
    User(Vec<&'a SentMessage>),
    /// A timer.
    Timer,
    /// Unknown: neither a message nor a timer of the run.
    Nobody,
}

impl<'a> Case<'a> {
    /// Groups the facts by session.
    pub(super) fn from_evidence(evidence: &'a RunEvidence) -> impl Iterator<Item = Self> {
        let mut cases: BTreeMap<&str, Self> = BTreeMap::new();
        let mut case = |session_id: &'a str, take: &mut dyn FnMut(&mut Self)| {
            take(cases.entry(session_id).or_insert_with(|| Self { session_id, ..Self::default() }));
        };
        evidence.sent.iter().for_each(|sent| case(&sent.session_id, &mut |case| case.sent.push(sent)));
        evidence.bad.iter().for_each(|bad| case(&bad.session_id, &mut |case| case.bad.push(bad)));
        evidence.sessions.iter().for_each(|found| case(&found.session_id, &mut |case| case.session = Some(found)));
        for record in &evidence.turns {
            case(&record.session_id, &mut |case| {
                case.records.insert(&record.turn_id, record);
            });
        }
        evidence.replies.iter().for_each(|reply| case(&reply.session_id, &mut |case| case.replies.push(reply)));
        evidence.statuses.iter().for_each(|seen| case(&seen.event.session_id, &mut |case| case.statuses.push(seen)));
        evidence.letters.iter().for_each(|letter| case(&letter.session_id, &mut |case| case.letters.push(letter)));
        evidence.calls.iter().for_each(|call| case(call.turn().0, &mut |case| case.calls.push(call)));
        evidence.dialogues.iter().for_each(|found| case(&found.session_id, &mut |case| case.dialogue = Some(found)));
        evidence.authoring.iter().for_each(|event| case(&event.session_id, &mut |case| case.authoring.push(event)));
        cases.into_values().map(|mut case| {
            case.turns = case.turns_of_lane();
            case
        })
    }

    /// Ids of all processed jobs in the order of the lane. Conversations are short enough that the session forgets
    /// none.
    pub(super) fn lane(&self) -> &'a [String] {
        self.session.map_or(&[], |session| &session.recent_jobs)
    }

    pub(super) fn manner(&self) -> Manner {
        self.sent.first().map_or(Manner::Plain, |sent| sent.manner)
    }

    pub(super) fn turn(&self, turn_id: &str) -> Option<(usize, &Turn<'a>)> {
        self.turns.iter().enumerate().find(|(_, turn)| turn.turn_id == turn_id)
    }

    fn turns_of_lane(&self) -> Vec<Turn<'a>> {
        let mut turns: Vec<Turn<'a>> = Vec::new();
        for job_id in self.lane() {
            let record = self.records.get(job_id.as_str()).copied();
            let sent = self.sent.iter().find(|sent| sent.job_id == *job_id);
            let of = match (sent, record) {
                (Some(sent), None) if sent.manner == Manner::Merging => {
                    // A merged message has no record of its own.
                    match turns.last_mut() {
                        Some(Turn { of: Of::User(merged), .. }) => {
                            merged.push(sent);
                            continue;
                        }
                        _ => Of::User(vec![sent]),
                    }
                }
                (Some(sent), _) => Of::User(vec![sent]),
                (None, Some(record)) if matches!(record.job.body, JobBody::Timer { .. }) => Of::Timer,
                (None, _) => Of::Nobody,
            };
            turns.push(Turn { turn_id: job_id, record, of });
        }
        turns
    }
}

impl<'a> Turn<'a> {
    /// The user's messages of this turn.
    pub(super) fn sent(&self) -> &[&'a SentMessage] {
        match &self.of {
            Of::User(sent) => sent,
            Of::Timer | Of::Nobody => &[],
        }
    }

    pub(super) fn is_users(&self) -> bool {
        matches!(self.of, Of::User(_))
    }

    pub(super) fn lines(&self) -> Vec<ScriptMessage> {
        self.sent().iter().filter_map(|sent| ScriptMessage::parse(&sent.text)).collect()
    }

    pub(super) fn is(&self, outcome: Outcome) -> bool {
        self.record.is_some_and(|record| record.outcome == outcome)
    }

    /// True if the turn was dead-lettered after too many attempts. The engine may do this; the user gets an apology.
    pub(super) fn is_given_up(&self) -> bool {
        let reason = self.record.and_then(|record| record.reason.as_deref()).unwrap_or_default();
        self.is(Outcome::Cancelled) && reason.starts_with("attempts")
    }
}
