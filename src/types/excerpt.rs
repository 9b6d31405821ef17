//! The beginning of a text that is too long.

use std::borrow::Cow;

/// Cuts a text that is longer than `limit` bytes, and appends a note with the original length.
pub fn cut(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let kept = &text[..text.floor_char_boundary(limit)];
    Cow::Owned(format!("{kept}… [{} of {} bytes]", kept.len(), text.len()))
}

/// The first `count` characters of a text.
pub fn first_chars(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_characters_are_whole() {
        assert_eq!((first_chars("你好吗", 2), first_chars("你好", 2), first_chars("", 2)), ("你好", "你好", ""));
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_so() {
        assert_eq!(cut("你好", 6), "你好");
        assert_eq!(cut("你好吗", 7), "你好… [6 of 9 bytes]");
    }
}
