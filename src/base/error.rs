//! The cause of an error: kept for programs, shared between callers, and printed for people.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The cause of another error, which may be a plain text. Cheap to clone, because one failure can have many callers.
///
/// It hides the concrete type, so a contract's error can keep the error of a driver that the contract does not know.
/// `SharedError::from` accepts every error and every text.
#[derive(Clone)]
pub struct SharedError(Arc<dyn Error + Send + Sync>);

/// A text for people, with the error that it describes.
#[derive(Debug)]
struct Explained {
    text: String,
    source: SharedError,
}

impl SharedError {
    /// Creates a cause that prints `text`. [`with_causes`] prints it in place of `source`.
    pub fn explained(text: impl Into<String>, source: impl Into<Self>) -> Self {
        Self(Arc::new(Explained { text: text.into(), source: source.into() }))
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for SharedError {
    fn from(error: E) -> Self {
        Self(error.into().into())
    }
}

impl Deref for SharedError {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Explained {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// Prints an error with its causes, separated by `: `. Omits a cause that the text already contains, because many
/// errors include the text of their source.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for cause in causes(error) {
        let part = cause.to_string();
        if text.is_empty() {
            text = part;
        } else if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        if cause.is::<Explained>() {
            break;
        }
    }
    text
}

/// The error, then its causes, the direct one first.
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error("cannot read it")]
        Read(#[source] SharedError),
        #[error("the store is unavailable: {0}")]
        Unavailable(#[source] SharedError),
    }

    #[test]
    fn causes_are_printed_once() {
        let read = Failed::Read(io::Error::other("disk full").into());
        assert_eq!(with_causes(&read), "cannot read it: disk full");
        assert_eq!(with_causes(&Failed::Unavailable("shut down".into())), "the store is unavailable: shut down");
        let nested = Failed::Unavailable(Failed::Read("disk full".into()).into());
        assert_eq!(with_causes(&nested), "the store is unavailable: cannot read it: disk full");
    }

    #[test]
    fn an_explanation_is_printed_in_place_of_its_source() {
        let explained = SharedError::explained("no server responds", io::Error::other("Kind: I/O, labels: {}"));
        let failed = Failed::Unavailable(explained);
        assert_eq!(with_causes(&failed), "the store is unavailable: no server responds");
        let alone = SharedError::explained("no server responds", io::Error::other("Kind: I/O, labels: {}"));
        assert_eq!(with_causes(&*alone), "no server responds");
        assert!(causes(&failed).any(|cause| cause.is::<io::Error>()), "the source is still there: {failed:?}");
    }
}
