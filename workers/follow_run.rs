//! Follows a run in the terminal: its progress on stderr, its output on stdout.

use crate::client::GatewayClient;
use crate::failure::Failure;
use crate::feed::Notice;
use crate::progress::{Progress, took};
use crate::signals::Signals;
use crate::table::{one_line, print, printable};
use base::tasks::Tasks;
use commands::run_details::RunDetails;
use engine::workflow::orchestration::event::{RunEvent, RunEventType};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use types::event::Event;
use types::run::RunStatus;

/// After this time without an event the run's record is read.
const SILENCE_LIMIT: Duration = Duration::from_secs(2);
/// How long a read of the run's record may take.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Exit status of a command that was ended by SIGINT.
const EXIT_INTERRUPTED: u8 = 130;

/// Follows one run.
pub struct RunFollower<'a> {
    client: &'a GatewayClient,
    run_id: &'a str,
    json: bool,
    progress: Progress,
    /// The output from the run's last event. The run's record may have cut it.
    output: Option<String>,
}

impl<'a> RunFollower<'a> {
    /// With `json`, stdout has each event as a line of JSON, and nothing else.
    pub fn new(client: &'a GatewayClient, run_id: &'a str, colour: bool, json: bool) -> Self {
        let progress = Progress::new(colour && std::io::stderr().is_terminal());
        Self { client, run_id, json, progress, output: None }
    }

    /// Follows until the run ends, or until Ctrl-C.
    pub async fn follow(mut self, tasks: &Tasks) -> anyhow::Result<ExitCode> {
        let mut signals = Signals::listen()?;
        let RunDetails { run, .. } = self.client.run(self.run_id).await?;
        let mut feed = self.client.follow_run(&run.run_id, tasks).await?;
        self.print_note(&format!("run {} of {}", self.run_id, run.workflow_id));
        loop {
            tokio::select! {
                // Cancel safe: a dropped `recv` loses no notice.
                notice = feed.recv() => match notice {
                    Some(Notice::Failed(error)) => return Err(error),
                    None => anyhow::bail!("the events of run `{}` ended", self.run_id),
                    // The gateway ends the stream of a run that has ended, also if its last event has expired.
                    Some(notice) => if self.show(&notice) || (notice.is_lost() && self.has_ended().await) {
                        return self.end().await;
                    },
                },
                // A full stream may have dropped the run's last event.
                () = sleep(SILENCE_LIMIT) => if self.has_ended().await { return self.end().await },
                () = signals.next() => return Ok(self.left()),
            }
        }
    }

    /// Prints a notice. Returns true for the run's last event.
    fn show(&mut self, notice: &Notice) -> bool {
        let event = match notice {
            Notice::Event(event) => event,
            Notice::Lost(problem) => {
                self.print_note(&format!("[connection] lost ({problem}); reconnecting …"));
                return false;
            }
            Notice::Back => {
                self.print_note("[connection] back");
                return false;
            }
            Notice::Failed(_) => return false,
        };
        let Some(event) = self.of_run(event) else { return false };
        if self.json {
            print(serde_json::to_string(&event).unwrap_or_default());
        } else {
            eprint!("{}", self.progress.event(&event, Instant::now()));
        }
        let ends = matches!(event.kind, RunEventType::RunCompleted | RunEventType::RunFailed) && event.depth == 0;
        if ends {
            let output = event.data.as_ref().and_then(|data| data.get("output")?.as_str());
            self.output = output.map(str::to_owned);
        }
        ends
    }

    /// The event, if it belongs to this run.
    fn of_run(&self, event: &Event) -> Option<RunEvent> {
        let Event::Run(event) = event else { return None };
        let event: RunEvent = serde_json::from_value(event.clone()).ok()?;
        (event.root_run_id == self.run_id).then_some(event)
    }

    /// False if the run cannot be read: the feed reports lost connections.
    async fn has_ended(&self) -> bool {
        let asked = timeout(READ_TIMEOUT, self.client.run(self.run_id)).await;
        matches!(asked, Ok(Ok(details)) if details.run.status.has_ended())
    }

    async fn end(&mut self) -> anyhow::Result<ExitCode> {
        let run = self.client.run(self.run_id).await?.run;
        eprint!("{}", self.progress.rest());
        if run.status == RunStatus::Completed {
            let (time, usage) = (run.started_at.zip(run.ended_at), run.usage);
            let time = time.map(|(from, to)| format!(" in {}", took(from.until(to)))).unwrap_or_default();
            let (stages, calls, tokens) = (usage.stages, usage.model_calls, usage.tokens);
            self.print_note(&format!("completed{time}: {stages} stages, {calls} model calls, {tokens} tokens"));
            let output = self.output.take().or(run.output).unwrap_or_default();
            if !self.json {
                print(printable(output.trim_end()));
            }
            return Ok(ExitCode::SUCCESS);
        }
        let why = run.error.map(|failure| failure.to_string()).unwrap_or_default();
        let id = self.run_id;
        let message = format!("run `{id}` is {}: {}", run.status.as_str(), one_line(&why));
        let hint = format!(
            "`turnwheel runs show {id}` shows its stages; `turnwheel runs resume {id}` continues at the failed stage"
        );
        Err(Failure::new(message, hint).into())
    }

    fn left(&mut self) -> ExitCode {
        eprint!("{}", self.progress.rest());
        let id = self.run_id;
        self.print_note(&format!(
            "the run continues\n  watch it:  turnwheel runs show {id} --watch\n  cancel it: turnwheel runs cancel {id}"
        ));
        ExitCode::from(EXIT_INTERRUPTED)
    }

    fn print_note(&self, text: &str) {
        eprintln!("{}", printable(text));
    }
}
