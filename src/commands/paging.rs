//! What all listings share: their bounds, and the cursor of the next page.

use crate::error::CommandError;
use serde::Serialize;
use std::io;
use types::page::{Bounds, MAX_PAGE_BYTES, Page, PageBuilder, Place};

/// The largest number of entries in a page.
pub const MAX_LIMIT: usize = 1_000;
/// The default number of entries in a page of a listing that may be long.
pub const DEFAULT_LIMIT: usize = 50;

/// A page as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<T> {
    /// The entries.
    pub items: Vec<T>,
    /// The cursor behind the last entry; `None` at the end of the listing.
    pub next: Option<String>,
}

impl<T> Listing<T> {
    /// Changes each entry.
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> Listing<U> {
        Listing { items: self.items.into_iter().map(change).collect(), next: self.next }
    }
}

/// Checks the bounds of a listing with [`DEFAULT_LIMIT`]. Fails with `invalid_query` for a limit outside of 1 to 1,000,
/// or a cursor that is none of the listing.
pub fn bounds<P: Place>(after: Option<String>, limit: Option<usize>) -> Result<Bounds<P>, CommandError> {
    Ok(Bounds { after: place(after)?, limit: bounded(limit)?, max_bytes: MAX_PAGE_BYTES })
}

/// The bounds of a listing that has [`MAX_LIMIT`] entries unless the caller asks for fewer.
pub fn wide_bounds<P: Place>(after: Option<String>, limit: Option<usize>) -> Result<Bounds<P>, CommandError> {
    bounds(after, Some(limit.unwrap_or(MAX_LIMIT)))
}

/// Validates the limit of a listing: 50 by default, at most 1,000. Fails with `invalid_query` outside of 1 to 1,000.
pub fn bounded(limit: Option<usize>) -> Result<usize, CommandError> {
    match limit.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => Ok(limit),
        other => {
            let message = format!("limit: {other} is not between 1 and {MAX_LIMIT}");
            Err(CommandError::invalid("invalid_query", message, "without `limit` the listing has its default length"))
        }
    }
}

/// Reads the cursor of a listing.
pub fn place<P: Place>(after: Option<String>) -> Result<Option<P>, CommandError> {
    let read = |text: String| {
        P::parse(&text).ok_or_else(|| {
            let message = format!("after: `{text}` is no cursor of this listing");
            CommandError::invalid("invalid_query", message, "give the `next` of the page before, as it is")
        })
    };
    after.map(read).transpose()
}

/// A page of a listing that is in memory. `is_behind` says whether an entry comes behind a place.
pub fn part_of<T, P>(
    all: impl IntoIterator<Item = T>,
    bounds: &Bounds<P>,
    is_behind: impl Fn(&T, &P) -> bool,
) -> Page<T> {
    let mut page = PageBuilder::new(bounds.limit, bounds.max_bytes);
    for item in all {
        let wanted = bounds.after.as_ref().is_none_or(|after| is_behind(&item, after));
        if wanted && !page.push(item, 0) {
            break;
        }
    }
    page.finish()
}

/// Cuts a page to [`MAX_PAGE_BYTES`] of JSON, which may be larger than the stored entries.
pub fn fit<T: Serialize, P: Place>(page: Page<T>, place: impl Fn(&T) -> P) -> Listing<T> {
    let mut fitting = PageBuilder::new(usize::MAX, MAX_PAGE_BYTES);
    for item in page.items {
        let bytes = json_bytes(&item);
        if !fitting.push(item, bytes) {
            break;
        }
    }
    let Page { items, has_more } = fitting.finish();
    let last = items.last().filter(|_| has_more || page.has_more);
    let next = last.map(|item| place(item).cursor());
    Listing { items, next }
}

/// The bytes of a value as JSON.
pub fn json_bytes(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value that cannot be written fails the response, too.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_cursors_are_checked() {
        assert_eq!(bounds::<u64>(None, None).unwrap().limit, DEFAULT_LIMIT);
        assert_eq!(wide_bounds::<u64>(Some("7".into()), None).unwrap().after, Some(7));
        for (after, limit) in [(None, Some(0)), (None, Some(MAX_LIMIT + 1)), (Some("x".to_owned()), None)] {
            assert!(bounds::<u64>(after, limit).is_err());
        }
    }

    #[test]
    fn a_page_is_cut_to_its_bytes_and_tells_where_it_goes_on() {
        let large = "\u{1}".repeat(MAX_PAGE_BYTES / 12);
        let page = |sizes: &[&str], has_more| Page {
            items: sizes.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>(),
            has_more,
        };
        let listed = |page| {
            let Listing { items, next } = fit(page, |text: &String| text.len() as u64);
            (items.len(), next)
        };
        assert_eq!(listed(page(&["a", "bb"], false)), (2, None));
        assert_eq!(listed(page(&["a", "bb"], true)), (2, Some("2".to_owned())));
        // Each of these characters has six bytes in JSON.
        assert_eq!(listed(page(&["a", &large, &large, "b"], false)), (2, Some(large.len().to_string())));
        assert_eq!(listed(page(&[], true)), (0, None));
    }

    #[test]
    fn a_listing_in_memory_goes_on_behind_its_cursor() {
        let bounds = Bounds { after: Some(2), limit: 2, max_bytes: usize::MAX };
        let page = part_of(1..=5, &bounds, |one, after| one > after);
        assert_eq!((page.items, page.has_more), (vec![3, 4], true));
    }
}
