//! Runs or compiles one script with the interpreter.

use super::look::MODULE_REMEDY;
use super::values;
use crate::error::ErrorKind;
use crate::protocol::{Limits, Problem, Request, Response, cut};
use chrono::{DateTime, Datelike, Timelike, Utc};
use monty::{MontyRun, RunProgress};
use monty_types::{
    CompileOptions, ExcType, ExtFunctionResult, MontyDate, MontyDateTime, MontyException, MontyObject, MontyTimeZone,
    NameLookupResult, OsFunctionCall, PrintWriter, PrintWriterCallback, ResourceLimits, ResourceTracker,
};
use std::borrow::Cow;
use std::time::Duration;

const FILE: &str = "script.py";
/// How the interpreter introduces a construct that it does not support.
const UNSUPPORTED: &str = "The monty syntax parser does not yet support ";

/// Constructs without support, by the beginning of the interpreter's words, with what to do instead.
const REMEDIES: &[(&str, &str)] = &[
    ("yield", "build a list"),
    ("the 'del' statement", "build a new list or dict without it, or use `pop`"),
    ("pattern matching", "use `if` and `elif`"),
    ("class inheritance", "use functions and plain classes"),
    ("method decorators", "use plain methods or functions"),
    ("async", "use plain loops"),
];

/// Runs a script of its own, before the process limits itself. Some libraries read files of the system once, such as the
/// number of processors for regular expressions, and keep the result.
pub(super) fn prepare() {
    let code =
        "import json, re\nfrom datetime import datetime\nre.search('(a|b)+$', 'ab')\nre.match(r'(a)(?=b)\\1?', 'ab')";
    let run = MontyRun::new(code.to_owned(), FILE, Vec::new(), CompileOptions::default());
    // Its outcome is of no interest.
    drop(run.map(|run| run.run(Vec::new(), ResourceTracker::default(), PrintWriter::Disabled)));
}

/// Compiles a script without running it.
pub(super) fn check(code: &str) -> Result<(), Problem> {
    compiled(code, Vec::new()).map(drop)
}

/// Runs a script.
pub(super) fn run(request: Request) -> Response {
    let Request { code, inputs, limits, .. } = request;
    let (names, inputs): (Vec<_>, Vec<_>) =
        inputs.into_iter().map(|(name, value)| (name, values::object(value))).unzip();
    let run = match compiled(&code, names) {
        Ok(run) => run,
        Err(problem) => return Response::failed(problem, String::new()),
    };
    let most = usize::try_from(limits.stdout_bytes).unwrap_or(usize::MAX);
    let mut printed = Printed { text: String::new(), most };
    let ended = executed(run, inputs, &limits, &mut printed);
    let mut stdout = printed.text;
    cut(&mut stdout, most);
    let output = ended.and_then(|output| encoded(output, &limits));
    match output {
        Ok(output) => Response::ok(output, stdout),
        Err(problem) => Response::failed(problem, stdout),
    }
}

fn compiled(code: &str, names: Vec<String>) -> Result<MontyRun, Problem> {
    // The interpreter returns the value of a last expression. The body of a function does not.
    let body = format!("{code}\nreturn None\n");
    let options = CompileOptions::default();
    MontyRun::new(body, FILE, names.clone(), options).map_err(|error| {
        // The added line would be named in the error of a statement that is not complete.
        let error = MontyRun::new(code.to_owned(), FILE, names, options).err().unwrap_or(error);
        let lines = u32::try_from(code.lines().count()).unwrap_or(u32::MAX).max(1);
        let line = line(&error).map(|line| line.min(lines));
        let message = error.message().unwrap_or_default();
        if error.exc_type() != ExcType::NotImplementedError {
            let name = error.exc_type().to_string();
            return Problem { kind: ErrorKind::Syntax, name, message: message.to_owned(), line };
        }
        let construct = message.strip_prefix(UNSUPPORTED).unwrap_or(message);
        let remedy = REMEDIES.iter().find(|(start, _)| construct.starts_with(start)).map(|(_, remedy)| *remedy);
        let remedy = remedy.unwrap_or("write it in another way");
        let message = format!("the built-in Python does not support {construct}; {remedy}, or set python.runner");
        Problem { kind: ErrorKind::Unsupported, name: String::new(), message, line }
    })
}

fn executed(
    run: MontyRun,
    inputs: Vec<MontyObject>,
    limits: &Limits,
    printed: &mut Printed,
) -> Result<MontyObject, Problem> {
    let of_time = Duration::from_millis(limits.wall_ms);
    // A single large allocation is refused with its line. The limit of the process covers everything else.
    let memory = usize::try_from(limits.memory_bytes).unwrap_or(usize::MAX);
    let tracker = ResourceTracker::new(ResourceLimits::default().max_duration(of_time).max_memory(memory));
    let mut print = PrintWriter::Callback(printed);
    let mut progress = run.start(inputs, tracker, print.reborrow());
    loop {
        progress = match progress.map_err(|error| problem(&error, limits))? {
            RunProgress::Complete(output) => return Ok(output),
            RunProgress::NameLookup(lookup) => lookup.resume(NameLookupResult::Undefined, print.reborrow()),
            RunProgress::OsCall(call) => match now(&call.function_call, limits.now_ms) {
                Some(time) => call.resume(time, print.reborrow()),
                None => {
                    let name = call.function_call.name();
                    return Err(forbidden(name, call.abort(refusal(name), print.reborrow())));
                }
            },
            RunProgress::FunctionCall(call) => {
                let name = call.function_name.clone();
                call.resume(ExtFunctionResult::NotFound(name), print.reborrow())
            }
            RunProgress::ResolveFutures(futures) => {
                let stuck = MontyException::new(ExcType::RuntimeError, Some("it waits for ever".to_owned()));
                futures.abort(stuck, print.reborrow())
            }
        };
    }
}

fn refusal(name: &str) -> MontyException {
    MontyException::new(ExcType::PermissionError, Some(name.to_owned()))
}

/// The error of a call to the system. `aborted` has the line of the call.
fn forbidden(name: &str, aborted: Result<RunProgress, MontyException>) -> Problem {
    let message = format!(
        "`{name}` is not allowed: scripts reach no files, environment or network; pass values by `input_mapping`"
    );
    Problem { line: aborted.err().as_ref().and_then(line), ..Problem::new(ErrorKind::Forbidden, message) }
}

/// The error of a script that has raised an exception or reached a limit.
fn problem(error: &MontyException, limits: &Limits) -> Problem {
    let message = error.message().unwrap_or_default();
    let of = |kind, message: String| Problem { line: line(error), ..Problem::new(kind, message) };
    match error.exc_type() {
        ExcType::TimeoutError if message.starts_with("time limit exceeded") => of(
            ErrorKind::Timeout,
            format!("the script took longer than {} ms; compute less, or raise its timeout", limits.wall_ms),
        ),
        ExcType::MemoryError if message.starts_with("memory limit exceeded") => {
            of(ErrorKind::Memory, format!("the script needs more than {} MiB of memory", limits.memory_bytes >> 20))
        }
        kind => {
            let mut message = message.to_owned();
            if kind == ExcType::ModuleNotFoundError {
                message = format!("{message}; {MODULE_REMEDY}");
            }
            Problem { name: kind.to_string(), ..of(ErrorKind::Exception, message) }
        }
    }
}

/// The line of the innermost call.
fn line(error: &MontyException) -> Option<u32> {
    error.traceback().last().map(|frame| frame.start.line)
}

/// The output as JSON within its limit.
fn encoded(output: MontyObject, limits: &Limits) -> Result<serde_json::Value, Problem> {
    let typed = |message| Problem { name: "TypeError".to_owned(), ..Problem::new(ErrorKind::Exception, message) };
    let output = values::json(output).map_err(typed)?;
    let bytes = serde_json::to_vec(&output).map_err(|error| typed(error.to_string()))?.len();
    if u64::try_from(bytes).is_ok_and(|bytes| bytes > limits.output_bytes) {
        let message =
            format!("the output has {bytes} bytes, and at most {} are allowed; return less", limits.output_bytes);
        return Err(Problem::new(ErrorKind::Output, message));
    }
    Ok(output)
}

/// The value of a call that asks for the time: the time of the request, in UTC. `None` for any other call.
fn now(call: &OsFunctionCall, now_ms: i64) -> Option<MontyObject> {
    let shifted = |zone: Option<&MontyTimeZone>| {
        let offset = zone.map_or(0, |zone| i64::from(zone.offset_seconds));
        DateTime::<Utc>::from_timestamp_millis(now_ms.saturating_add(offset * 1_000)).unwrap_or_default()
    };
    // Parts of a date are far below 256.
    let small = |part: u32| u8::try_from(part).unwrap_or(u8::MAX);
    match call {
        OsFunctionCall::DateToday => {
            let time = shifted(None);
            Some(MontyObject::Date(MontyDate { year: time.year(), month: small(time.month()), day: small(time.day()) }))
        }
        OsFunctionCall::DateTimeNow(zone) => {
            let time = shifted(zone.as_ref());
            Some(MontyObject::DateTime(MontyDateTime {
                year: time.year(),
                month: small(time.month()),
                day: small(time.day()),
                hour: small(time.hour()),
                minute: small(time.minute()),
                second: small(time.second()),
                microsecond: time.timestamp_subsec_micros(),
                offset_seconds: zone.as_ref().map(|zone| zone.offset_seconds),
                timezone_name: zone.as_ref().and_then(|zone| zone.name.clone()),
            }))
        }
        _ => None,
    }
}

/// Collects printed text up to a limit, and a little more, so that the cut is noticed.
struct Printed {
    text: String,
    most: usize,
}

impl PrintWriterCallback for Printed {
    fn stdout_write(&mut self, output: Cow<'_, str>) -> Result<(), MontyException> {
        if self.text.len() <= self.most {
            let room = output.floor_char_boundary(self.most - self.text.len() + 1);
            self.text.push_str(&output[..room]);
            // A character that does not fit still counts as one that was cut.
            if room < output.len() && self.text.len() <= self.most {
                self.text.push_str(&" ".repeat(self.most + 1 - self.text.len()));
            }
        }
        Ok(())
    }

    fn stdout_push(&mut self, end: char) -> Result<(), MontyException> {
        self.stdout_write(Cow::Borrowed(end.encode_utf8(&mut [0; 4])))
    }
}
