//! Masks a text that arrives in pieces. It holds back the end of the text while that may still become a secret.

use super::{Masker, escape, views};

/// The length of the longest escape in bytes.
const LONGEST_ESCAPE: usize = 12;

/// A text that arrives in pieces.
pub struct Pieces<'m> {
    masker: &'m Masker,
    kept: String,
}

impl<'m> Pieces<'m> {
    /// Starts a new text.
    pub fn new(masker: &'m Masker) -> Self {
        Self { masker, kept: String::new() }
    }

    /// Appends a piece. Returns the part that can be shown by now, masked.
    pub fn push(&mut self, piece: &str) -> String {
        self.kept.push_str(piece);
        let rest = self.kept.split_off(self.settled());
        let settled = std::mem::replace(&mut self.kept, rest);
        self.masker.mask(&settled)
    }

    /// Ends the text. Returns the part that was held back, masked.
    pub fn finish(self) -> String {
        self.masker.mask(&self.kept)
    }

    /// The position before which no later piece can complete a secret.
    fn settled(&self) -> usize {
        if self.masker.secrets.is_empty() {
            return self.kept.len();
        }
        let whole = &self.kept[..self.open_escape()];
        let mut end = whole.len();
        for view in views(whole) {
            let begun = (0..view.bytes.len()).find(|at| {
                let rest = &view.bytes[*at..];
                self.masker.beginning_with(rest[0]).iter().any(|secret| secret.starts_with(rest))
            });
            end = end.min(begun.map_or(end, |at| view.origins[at]));
        }
        for (begin, after) in self.masker.found(&self.kept).into_iter().rev() {
            if begin < end && end < after {
                end = begin;
            }
        }
        self.kept.floor_char_boundary(end)
    }

    /// The position of an incomplete escape at the end of the text; otherwise the end of the text.
    fn open_escape(&self) -> usize {
        let bytes = self.kept.as_bytes();
        let tail = bytes.len().saturating_sub(LONGEST_ESCAPE - 1);
        let opens = |at: &usize| matches!(bytes[*at], b'%' | b'\\' | b'&') && escape(&bytes[*at..]).is_none();
        (tail..bytes.len()).find(opens).unwrap_or(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, size: usize) -> (String, String) {
        let masker = Masker::new(["s3cret-token".to_owned(), "s3cret".into(), "密钥/一二".into(), "abcab".into()]);
        let mut pieces = Pieces::new(&masker);
        let chars: Vec<char> = text.chars().collect();
        let mut whole = String::new();
        for piece in chars.chunks(size) {
            whole.push_str(&pieces.push(&piece.iter().collect::<String>()));
        }
        whole.push_str(&pieces.finish());
        (whole, masker.mask(text))
    }

    #[test]
    fn however_a_text_is_cut_it_is_masked_as_a_whole() {
        for text in [
            "a s3cret-token and s3cret-tok and s3cret",
            "密钥/一二密钥/一",
            "s3cret%2Dtoken s3c%72et \\u0073\\u0033cret &#115;3cret 100% & more \\",
            "%E5%AF%86%E9%92%A5%2F%E4%B8%80%E4%BA%8C!",
            "abcabcabcab abca",
            "no secret at all, 你好",
        ] {
            for size in 1..=text.chars().count() {
                let (pieces, whole) = shown(text, size);
                assert_eq!(pieces, whole, "in pieces of {size}");
                assert!(!pieces.contains("s3cret") && !pieces.contains("密钥/一二") && !pieces.contains("abcab"));
            }
        }
    }

    #[test]
    fn what_cannot_become_a_secret_is_shown_at_once() {
        let masker = Masker::new(["s3cret".to_owned()]);
        let mut pieces = Pieces::new(&masker);
        assert_eq!(pieces.push("first words s3"), "first words ");
        assert_eq!(pieces.push("c"), "");
        assert_eq!(pieces.push("a"), "s3ca");
        let none = Masker::default();
        assert_eq!(Pieces::new(&none).push("100%"), "100%");
    }
}
