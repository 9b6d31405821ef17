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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_so() {
        assert_eq!(cut("你好", 6), "你好");
        assert_eq!(cut("你好吗", 7), "你好… [6 of 9 bytes]");
    }
}
