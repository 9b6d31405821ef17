//! Pages of listings, bounded in entries and in bytes, and the cursors that lead from one page to the next.

use crate::timestamp::Timestamp;

/// The bytes of a page. An entry that is larger is a page of its own.
pub const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

/// The part of a listing that a caller asks for. `P` is the place of an entry: the values by which the listing is sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds<P> {
    /// Only entries behind this place.
    pub after: Option<P>,
    /// The highest number of entries.
    pub limit: usize,
    /// The page ends before the entry with which it would have more bytes, as stored, but not before its first entry.
    pub max_bytes: usize,
}

impl<P> Bounds<P> {
    /// Only the first `limit` entries.
    pub const fn first(limit: usize) -> Self {
        Self { after: None, limit, max_bytes: usize::MAX }
    }
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The entries.
    pub items: Vec<T>,
    /// True if there are entries behind the last one.
    pub has_more: bool,
}

impl<T> Page<T> {
    /// Changes each entry; fails with the first error.
    pub fn try_map<U, E>(self, change: impl FnMut(T) -> Result<U, E>) -> Result<Page<U>, E> {
        let items = self.items.into_iter().map(change).collect::<Result<_, _>>()?;
        Ok(Page { items, has_more: self.has_more })
    }

    /// Changes each entry.
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(change).collect(), has_more: self.has_more }
    }
}

/// Collects the entries of a page.
#[derive(Debug)]
pub struct PageBuilder<T> {
    page: Page<T>,
    limit: usize,
    bytes_left: usize,
}

impl<T> PageBuilder<T> {
    /// An empty page with these bounds.
    pub fn new(limit: usize, max_bytes: usize) -> Self {
        Self { page: Page { items: Vec::new(), has_more: false }, limit, bytes_left: max_bytes }
    }

    /// Adds the next entry of the listing. Returns false if the page is full: then the entry is not added, and the rest of
    /// the listing need not be read.
    pub fn push(&mut self, item: T, bytes: usize) -> bool {
        let is_full = self.page.items.len() >= self.limit || (bytes > self.bytes_left && !self.page.items.is_empty());
        if is_full {
            self.page.has_more = true;
            return false;
        }
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        self.page.items.push(item);
        true
    }

    /// Returns the page.
    pub fn finish(self) -> Page<T> {
        self.page
    }
}

/// The place of an entry in a listing, as the text of a cursor. Clients take the text as it is.
pub trait Place: Sized {
    /// Reads a cursor; `None` if it is none of this listing.
    fn parse(text: &str) -> Option<Self>;

    /// Writes the cursor that leads behind this place.
    fn cursor(&self) -> String;
}

impl Place for String {
    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn cursor(&self) -> String {
        self.clone()
    }
}

impl Place for u64 {
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn cursor(&self) -> String {
        self.to_string()
    }
}

impl Place for Timestamp {
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self::from_millis)
    }

    fn cursor(&self) -> String {
        self.as_millis().to_string()
    }
}

/// The first part has no `/`.
impl<A: Place, B: Place> Place for (A, B) {
    fn parse(text: &str) -> Option<Self> {
        let (first, second) = text.split_once('/')?;
        Some((A::parse(first)?, B::parse(second)?))
    }

    fn cursor(&self) -> String {
        format!("{}/{}", self.0.cursor(), self.1.cursor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_place() {
        let at = Timestamp::from_millis(-7);
        let place = (at, ("会话".to_owned(), "t/1".to_owned()));
        assert_eq!(place.cursor(), "-7/会话/t/1");
        assert_eq!(Place::parse(&place.cursor()), Some(place));
        assert_eq!(u64::parse("x"), None);
        assert_eq!(<(Timestamp, String)>::parse("7"), None);
        assert_eq!(<(Timestamp, String)>::parse("7/"), None);
    }

    #[test]
    fn a_page_ends_at_its_entries_or_bytes_but_has_one_entry() {
        let page = |limit, max_bytes, sizes: &[usize]| {
            let mut page = PageBuilder::new(limit, max_bytes);
            let taken = sizes.iter().take_while(|size| page.push(**size, **size)).count();
            let Page { items, has_more } = page.finish();
            assert_eq!(items, sizes[..taken]);
            (taken, has_more)
        };
        assert_eq!(page(2, 100, &[1, 1]), (2, false));
        assert_eq!(page(2, 100, &[1, 1, 1]), (2, true));
        assert_eq!(page(9, 100, &[60, 40, 1]), (2, true));
        assert_eq!(page(9, 100, &[500, 1]), (1, true));
        assert_eq!(page(9, 100, &[1, 500]), (1, true));
        assert_eq!(page(0, 100, &[1]), (0, true));
        assert_eq!(page(9, 100, &[]), (0, false));
    }
}
