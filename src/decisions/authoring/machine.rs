//! The transitions between the stages.

use super::answer::{Alternatives, Clarification, Diagnosis, Fact, GapAnalysis, Negotiation, Question, Unusable};
use super::recorder::{Recorder, attempt, is_unpublished, workflow_id};
use super::{MAX_GAP_ROUNDS, MAX_LOOPS, words};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use types::authoring::message::{Complete, Debugging, DraftWritten};
use types::authoring::state::{MAX_GAPS, MAX_INFO, MAX_INFO_VALUE};
use types::authoring::{
    AlternativeOption, Artifact, Body, ClarificationQuestion, Draft, ErrorCode, GapRounds, MessageType, Publish,
    Published, Purpose, Stage, StoredState, TestCounts,
};
use types::excerpt::cut;
use types::timestamp::Timestamp;

/// The next step of the dialogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// No step: the turn has ended, and the dialogue waits for the user.
    Wait,
    /// Ask the model.
    Ask(Question),
    /// Check the draft.
    Check,
    /// Publish the draft.
    Publish,
}

/// The result of a step.
#[derive(Clone, Debug)]
pub enum Input {
    /// The answer to [`Question::Clarification`].
    Clarified(Clarification),
    /// The answer to [`Question::Negotiation`].
    Negotiated(Negotiation),
    /// The answer to [`Question::GapAnalysis`], with the ids of the catalogue that the model was shown.
    Analysed(GapAnalysis, HashSet<String>),
    /// The answer to [`Question::AlternativeGeneration`].
    Offered(Alternatives),
    /// The answer to [`Question::WorkflowGeneration`], with a document that is kept as a draft.
    Drafted {
        /// The words for the user.
        reply: String,
        /// The draft.
        draft: NewDraft,
    },
    /// The answer to [`Question::WorkflowGeneration`] was `reopen`.
    Reopened {
        /// The words for the user.
        reply: String,
    },
    /// The result of [`Next::Check`].
    Checked(Checked),
    /// The answer to [`Question::Debug`].
    Diagnosed(Diagnosis),
    /// The result of [`Next::Publish`].
    Published(Publication),
}

/// A draft that was stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewDraft {
    /// The hash of the document.
    pub hash: String,
    /// The hash of the document from which it was made.
    pub base_hash: Option<String>,
    /// The number of its tests.
    pub tests: u32,
    /// The tests that the model wrote, as JSON texts.
    pub cases: Vec<String>,
}

/// The result of the checks of a draft.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The report for clients. The machine sets its attempt.
    pub report: Debugging,
    /// Why the draft failed, one sentence for each reason, for the user and the model.
    pub problems: Vec<String>,
}

/// The result of a publication.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Publication {
    /// The draft is in use.
    Done(Published),
    /// It was refused, for this reason.
    Refused(String),
}

/// Returns the next step of the dialogue. It depends only on the state.
pub fn next(stored: &StoredState) -> Next {
    if !stored.in_turn() {
        return Next::Wait;
    }
    match stored.state.stage {
        Stage::Clarification => Next::Ask(Question::Clarification),
        Stage::Negotiation => Next::Ask(Question::Negotiation),
        Stage::GapAnalysis => Next::Ask(Question::GapAnalysis),
        Stage::AlternativeGeneration => Next::Ask(Question::AlternativeGeneration),
        Stage::WorkflowGeneration => Next::Ask(Question::WorkflowGeneration),
        Stage::Debug => match stored.draft.as_ref().map(|draft| draft.ok) {
            // The draft is lost, so the model writes it again.
            None => Next::Ask(Question::WorkflowGeneration),
            Some(None) => Next::Check,
            Some(Some(true)) => Next::Publish,
            Some(Some(false)) => Next::Ask(Question::Debug),
        },
        // A turn ends when it enters these stages. Only a state that was edited by hand reaches this line.
        Stage::Completed | Stage::Error => Next::Wait,
    }
}

/// Applies the result of the last step of [`next`]. `notes` are added to the metadata of the messages. An answer that
/// cannot be used leaves the state unchanged.
pub fn advance(
    stored: &mut StoredState,
    input: Input,
    notes: BTreeMap<String, String>,
    now: Timestamp,
) -> Result<(), Unusable> {
    check(stored, &input)?;
    let mut recorder = Recorder::new(stored, notes, now);
    match input {
        Input::Clarified(answer) => recorder.clarified(answer),
        Input::Negotiated(answer) => recorder.negotiated(answer),
        Input::Analysed(answer, catalogue) => recorder.analysed(&answer, &catalogue),
        Input::Offered(answer) => recorder.offered(answer),
        Input::Drafted { reply, draft } => recorder.drafted(&reply, draft),
        Input::Reopened { reply } => {
            recorder.reopens();
            recorder.say(&reply, MessageType::Text);
            recorder.enter(Stage::Negotiation);
        }
        Input::Checked(checked) => recorder.checked(checked),
        Input::Diagnosed(answer) => recorder.diagnosed(answer),
        Input::Published(Publication::Done(published)) => {
            recorder.stored.published = Some(published);
            recorder.complete();
        }
        Input::Published(Publication::Refused(reason)) => {
            recorder.enter(Stage::Negotiation);
            recorder.fail(ErrorCode::PublishRefused, &reason);
        }
    }
    Ok(())
}

fn check(stored: &StoredState, input: &Input) -> Result<(), Unusable> {
    match input {
        Input::Clarified(answer) => answer.check(),
        Input::Negotiated(answer) => answer.check(),
        Input::Analysed(answer, _) => answer.check(),
        Input::Offered(answer) => answer.check(&stored.state.gaps, !stored.state.alternatives.is_empty()),
        Input::Reopened { .. } if stored.turn.as_ref().is_some_and(|turn| turn.reopened) => {
            Err(Unusable::because("the requirements were reopened in this turn before; write the document"))
        }
        Input::Reopened { .. } | Input::Drafted { .. } | Input::Checked(_) => Ok(()),
        Input::Diagnosed(_) | Input::Published(_) => Ok(()),
    }
}

impl Recorder<'_> {
    fn clarified(&mut self, answer: Clarification) {
        if !answer.intent_summary.trim().is_empty() {
            self.stored.state.intent_summary = answer.intent_summary;
            shorten(&mut self.stored.state.intent_summary);
        }
        self.collect(&answer.collected_info);
        self.asks(answer.questions);
        let kind = if self.stored.questions.is_empty() { MessageType::Text } else { MessageType::Question };
        if self.needs_answers() {
            self.say_and_wait(&answer.reply, kind);
        } else {
            self.say(&answer.reply, kind);
            self.enter(Stage::Negotiation);
        }
    }

    fn negotiated(&mut self, answer: Negotiation) {
        self.collect(&answer.collected_info);
        if !answer.requirements.is_empty() {
            self.stored.state.collect("requirements", &answer.requirements.join("\n"));
        }
        self.asks(answer.questions);
        if self.needs_answers() {
            self.enter(Stage::Clarification);
            self.say_and_wait(&answer.reply, MessageType::Question);
        } else if answer.reopen && self.reopens() {
            self.say(&answer.reply, MessageType::Text);
            self.enter(Stage::Clarification);
        } else if answer.agreed && !answer.reopen {
            self.say(&answer.reply, MessageType::Text);
            self.enter(Stage::GapAnalysis);
        } else {
            let summary = answer.requirements.join("\n");
            let text = if answer.reply.trim().is_empty() { &summary } else { &answer.reply };
            let kind = if self.stored.questions.is_empty() { MessageType::Text } else { MessageType::Question };
            self.say_and_wait(text, kind);
        }
    }

    fn analysed(&mut self, answer: &GapAnalysis, catalogue: &HashSet<String>) {
        if answer.reopen && self.reopens() {
            return self.enter(Stage::Negotiation);
        }
        let (required, optional) = answer.gaps(catalogue);
        self.stored.state.gaps = required.iter().chain(&optional).cloned().collect();
        let language = self.stored.config.language;
        if required.is_empty() {
            if !optional.is_empty() {
                self.say(&words::optional_gaps(&optional, language), MessageType::Text);
            }
            self.stored.state.alternatives.clear();
            self.stored.state.debug_loop_count = 0;
            return self.enter(Stage::WorkflowGeneration);
        }
        let hopeless: Vec<String> = required.iter().filter(|gap| self.counts_gap(gap)).cloned().collect();
        if hopeless.is_empty() {
            self.stored.state.clarification_context.purpose = Purpose::GapResolution;
            self.stored.state.alternatives.clear();
            self.enter(Stage::AlternativeGeneration);
        } else {
            let text = words::hopeless_gaps(&hopeless, &self.stored.state.alternatives, language);
            self.enter(Stage::Negotiation);
            self.say_and_wait(&text, MessageType::Text);
        }
    }

    /// Counts that a required gap was found. Returns true if it was found so often that probably no alternative closes
    /// it.
    fn counts_gap(&mut self, gap: &str) -> bool {
        let known = &mut self.stored.gap_rounds;
        if let Some(found) = known.iter_mut().find(|one| one.gap == gap) {
            found.rounds = found.rounds.saturating_add(1);
            return found.rounds >= MAX_GAP_ROUNDS;
        }
        if known.len() >= MAX_INFO {
            known.remove(0);
        }
        known.push(GapRounds { gap: gap.to_owned(), rounds: 1 });
        false
    }

    fn offered(&mut self, answer: Alternatives) {
        if !answer.alternatives.is_empty() {
            self.stored.state.alternatives = answer.alternatives.into_iter().map(bounded).collect();
            if let [gap] = self.stored.state.gaps.as_slice() {
                for one in self.stored.state.alternatives.iter_mut().filter(|one| one.resolves.is_empty()) {
                    gap.clone_into(&mut one.resolves);
                }
            }
        }
        self.say_and_wait(&answer.reply, MessageType::Options);
    }

    fn drafted(&mut self, reply: &str, draft: NewDraft) {
        let workflow_id = workflow_id(self.stored);
        self.stored.state.workflow_id = Some(workflow_id.clone());
        self.say(reply, MessageType::Text);
        let data = DraftWritten {
            hash: draft.hash.clone(),
            base_hash: draft.base_hash.clone(),
            definition: None,
            definition_url: None,
            tests: draft.tests,
            attempt: attempt(self.stored),
        };
        self.tell(Body::WorkflowDraft { workflow_id, data });
        let NewDraft { hash, base_hash, cases, .. } = draft;
        self.stored.draft = Some(Draft { hash, base_hash, cases, ..Draft::default() });
        self.enter(Stage::Debug);
    }

    fn checked(&mut self, Checked { mut report, problems }: Checked) {
        report.attempt = attempt(self.stored);
        report.ok = report.errors.is_empty() && report.tests.failed.is_empty();
        let ok = report.ok;
        let count = |list: &[serde_json::Value]| u32::try_from(list.len()).unwrap_or(u32::MAX);
        let tests = TestCounts {
            passed: report.tests.passed,
            failed: count(&report.tests.failed),
            not_run: count(&report.tests.not_run),
        };
        if let Some(draft) = &mut self.stored.draft {
            (draft.ok, draft.tests, draft.problems) = (Some(ok), tests, problems.clone());
            draft.report = serde_json::to_string(&report).ok();
        }
        self.tell(Body::WorkflowDebugging { workflow_id: workflow_id(self.stored), data: report });
        if ok {
            if self.stored.publish == Publish::Manual {
                self.complete();
            }
            return;
        }
        self.stored.state.debug_loop_count = self.stored.state.debug_loop_count.saturating_add(1);
        if self.stored.state.debug_loop_count >= MAX_LOOPS {
            let text = words::failed_checks(&problems, "", self.stored.config.language);
            self.enter(Stage::Negotiation);
            self.say_and_wait(&text, MessageType::Text);
        }
    }

    fn diagnosed(&mut self, answer: Diagnosis) {
        if answer.give_up {
            let problems = self.stored.draft.as_ref().map(|draft| draft.problems.clone()).unwrap_or_default();
            let text = words::failed_checks(&problems, &answer.diagnosis, self.stored.config.language);
            self.enter(Stage::Negotiation);
            return self.say_and_wait(&text, MessageType::Text);
        }
        self.say(&answer.diagnosis, MessageType::Text);
        if answer.reopen && self.reopens() {
            return self.enter(Stage::Negotiation);
        }
        if let Some(draft) = &mut self.stored.draft {
            draft.changes = answer.changes;
        }
        self.enter(Stage::WorkflowGeneration);
    }

    /// Ends the turn with the finished artefact.
    fn complete(&mut self) {
        let (workflow_id, hash) =
            (workflow_id(self.stored), self.stored.draft.as_ref().map(|draft| draft.hash.clone()));
        let published = !is_unpublished(self.stored);
        let url = match (published, self.stored.artifact) {
            (true, Artifact::Workflow) => format!("/api/v1/workflows/{workflow_id}"),
            (true, Artifact::Agent) => format!("/api/v1/agents/{workflow_id}"),
            (false, _) => format!("/api/v1/workflow/{}/draft", self.stored.state.session_id),
        };
        let hash = hash.unwrap_or_default();
        let data = Complete { hash, definition: None, definition_url: None, published, url };
        self.tell(Body::WorkflowComplete { workflow_id: workflow_id.clone(), data });
        self.stored.gap_rounds.clear();
        self.enter(Stage::Completed);
        let text = words::completed(self.stored.artifact, &workflow_id, published, self.stored.config.language);
        self.say_completed(&text, workflow_id);
    }

    fn collect(&mut self, facts: &[Fact]) {
        for fact in facts {
            self.stored.state.collect(fact.key.trim(), fact.value.trim());
        }
    }

    fn asks(&mut self, mut questions: Vec<ClarificationQuestion>) {
        for question in &mut questions {
            shorten(&mut question.question);
            question.options.truncate(MAX_GAPS);
            question.options.iter_mut().for_each(shorten);
        }
        let ids = questions.iter().map(|question| question.id.clone()).collect();
        self.stored.state.clarification_context.pending_questions = ids;
        self.stored.questions = questions;
    }

    /// Returns true if a required question is open. It stays open even if the model reports `ready`.
    fn needs_answers(&self) -> bool {
        self.stored.questions.iter().any(|question| question.is_required)
    }

    /// Returns true only the first time in a turn, so that a turn ends.
    fn reopens(&mut self) -> bool {
        let turn = self.stored.turn.get_or_insert_default();
        !std::mem::replace(&mut turn.reopened, true)
    }
}

/// Cuts a text of the model to the limit for the stored state.
fn shorten(text: &mut String) {
    if text.len() > MAX_INFO_VALUE {
        *text = cut(text, MAX_INFO_VALUE).into_owned();
    }
}

fn bounded(mut one: AlternativeOption) -> AlternativeOption {
    one.trade_offs.truncate(MAX_GAPS);
    one.trade_offs.iter_mut().chain([&mut one.title, &mut one.description, &mut one.approach]).for_each(shorten);
    one
}
