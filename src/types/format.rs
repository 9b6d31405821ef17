//! The format of jobs and stored documents.
//!
//! Most changes are compatible: readers ignore fields that they do not know, and new fields are optional. A change that
//! an older reader would misunderstand raises [`FORMAT`]. A writer then stamps what needs a newer reader with the field
//! `format`. A reader that finds a stamp above its own format leaves the job or document to newer processes.

use serde::Deserialize;
use serde_json::Value;
use std::sync::atomic::{AtomicU32, Ordering};
use thiserror::Error;

/// The highest format that this version reads and writes. Jobs and documents of format 1 carry no stamp.
pub const FORMAT: u32 = 1;

/// The name of the stamp in jobs and documents.
pub const FIELD: &str = "format";

/// The environment variable by which tests raise the format of a process; see [`pretend`].
#[doc(hidden)]
pub const TEST_VARIABLE: &str = "TURNWHEEL_TEST_FORMAT";

static CURRENT: AtomicU32 = AtomicU32::new(FORMAT);

/// Lets this process read, and stamp on all that it writes, a format above its own. So tests can run two versions side
/// by side although there is one program.
#[doc(hidden)]
pub fn pretend(format: u32) {
    CURRENT.store(format.max(FORMAT), Ordering::Relaxed);
}

/// The highest format that this process reads.
pub fn current() -> u32 {
    CURRENT.load(Ordering::Relaxed)
}

/// The stamp for what this process writes; `None` when every version can read it.
pub fn stamp() -> Option<u32> {
    Some(current()).filter(|format| *format > 1)
}

/// A job or document that needs a newer version of Turnwheel.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "it has format {found}, and this version of Turnwheel reads formats up to {known}; a newer version wrote it, and a \
     process of that version must handle it"
)]
pub struct NewerFormat {
    /// The format of the job or document.
    pub found: u64,
    /// The highest format that this process reads.
    pub known: u32,
}

/// Checks a stamp.
pub fn check(found: u64) -> Result<(), NewerFormat> {
    let known = current();
    if found > u64::from(known) { Err(NewerFormat { found, known }) } else { Ok(()) }
}

/// Checks the stamp of an encoded JSON object. Anything else passes.
pub fn check_json(json: &[u8]) -> Result<(), NewerFormat> {
    #[derive(Deserialize)]
    struct Stamped {
        #[serde(default)]
        format: Value,
    }
    // Nearly nothing has a stamp, so the text is searched before it is decoded.
    if memchr::memmem::find(json, b"\"format\"").is_none() {
        return Ok(());
    }
    let found = serde_json::from_slice::<Stamped>(json).ok().and_then(|stamped| stamped.format.as_u64());
    found.map_or(Ok(()), check)
}

/// Adds this process' stamp to an encoded JSON object. Anything else stays as it is.
pub fn stamp_json(json: Vec<u8>) -> Vec<u8> {
    match (stamp(), json.as_slice()) {
        (Some(format), [b'{', rest @ ..]) => {
            let comma = if rest.first() == Some(&b'}') { "" } else { "," };
            [format!("{{\"{FIELD}\":{format}{comma}").as_bytes(), rest].concat()
        }
        _ => json,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stamp_of_the_object_itself_counts() {
        for readable in [
            r#"{"format":1}"#,
            r#"{"text":"\"format\": 9"}"#,
            r#"{"schema":{"format":9}}"#,
            r#"{"format":"date"}"#,
            r"[1]",
            "",
        ] {
            assert_eq!(check_json(readable.as_bytes()), Ok(()), "{readable}");
        }
        let newer = check_json(br#"{"type":"unknown", "format" : 7}"#).unwrap_err();
        assert_eq!((newer.found, newer.known), (7, FORMAT));
        assert!(newer.to_string().contains("format 7"), "{newer}");
    }

    // One test, because the format belongs to the process.
    #[test]
    fn what_a_newer_process_writes_is_stamped_and_it_reads_it() {
        assert_eq!(stamp_json(b"{}".to_vec()), b"{}");
        pretend(3);
        let stamped = ["{}", r#"{"a":1}"#, "[1]"].map(|json| String::from_utf8(stamp_json(json.into())).unwrap());
        assert_eq!(stamped, [r#"{"format":3}"#, r#"{"format":3,"a":1}"#, "[1]"]);
        let read = check_json(stamped[1].as_bytes());
        pretend(FORMAT);
        assert_eq!(read, Ok(()));
        assert!(check_json(stamped[1].as_bytes()).is_err());
    }
}
