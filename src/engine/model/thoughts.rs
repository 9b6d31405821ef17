//! Removes the thoughts of a reasoning model from its text: `<think>…</think>` and similar tags.
//!
//! A thought without a closing tag lasts until the end of the text. A closing tag without an opening one ends a thought
//! that started with the text, because the chat templates of such models write the opening tag themselves. A tag in
//! quotation marks or in code is text.

use super::answer;
use std::borrow::Cow;

/// The tags around a thought, in lower case. Upper case matches as well.
const THOUGHT_TAGS: [(&str, &str); 4] =
    [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<thought>", "</thought>"), ("[think]", "[/think]")];
/// Length of the longest tag in bytes.
const MAX_TAG_LENGTH: usize = 11;
/// Maximum number of closing tags after which a structure is looked for.
const MAX_CLOSING_TAGS: usize = 8;
/// A tag after one of these characters is quoted.
const QUOTES: &[char] = &['`', '"', '\'', '\\', '“', '‘', '「', '『', '《'];

/// Returns the text without its thoughts.
pub(crate) fn without(text: &str) -> String {
    split(text).0
}

/// Returns the text without its thoughts, and the reader, which knows whether it found any.
pub(crate) fn split(text: &str) -> (String, Thoughts) {
    let mut thoughts = Thoughts::default();
    let mut words = String::new();
    for VisibleText { text, void } in [thoughts.push(text), thoughts.finish()] {
        if void {
            words.clear();
        }
        words.push_str(&text);
    }
    (words, thoughts)
}

/// Returns an answer that must be a JSON structure without the thoughts before it. Texts inside the structure stay
/// unchanged.
pub(crate) fn before_structure(text: &str) -> Cow<'_, str> {
    let mut rest = text;
    for _ in 0..=MAX_CLOSING_TAGS {
        if answer::is_json(rest) {
            return rest.into();
        }
        let Some(end) = THOUGHT_TAGS.iter().filter_map(|(_, close)| Some(find(rest, close)? + close.len())).min()
        else {
            break;
        };
        rest = &rest[end..];
    }
    without(text).into()
}

/// The position of a tag, in upper or lower case.
fn find(text: &str, tag: &str) -> Option<usize> {
    let is_tag = |at: &usize| text.get(*at..at + tag.len()).is_some_and(|found| found.eq_ignore_ascii_case(tag));
    text.match_indices(['<', '[']).map(|(at, _)| at).find(is_tag)
}

/// Text that is known to be no thought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct VisibleText {
    pub(crate) text: String,
    /// Discard the text before this one: it was a thought, whose closing tag has only arrived now.
    pub(crate) void: bool,
}

/// Removes the thoughts from a text that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct Thoughts {
    /// The end of the text so far, if it may be the start of a tag.
    kept: String,
    /// The closing tag of the current thought.
    until: Option<&'static str>,
    /// A thought has just ended; white space after it is dropped.
    ended: bool,
    /// Whether a thought was found, and (`untagged`) one without an opening tag.
    found: bool,
    untagged: bool,
    /// Last character of the text so far.
    last: Option<char>,
    /// Number of backticks at the end of the text, and whether a code block is open.
    ticks: u8,
    in_code: bool,
    /// Number of open tags that count as text, so that their closing tags count as text, too.
    quoted: u32,
}

/// The possible starts of a text.
enum TagMatch {
    Open(&'static str, usize),
    Close(usize),
    /// A possible tag; more text is needed to decide.
    Perhaps,
    Text,
}

impl Thoughts {
    /// Adds a piece and returns the text that is known to be no thought.
    pub(crate) fn push(&mut self, piece: &str) -> VisibleText {
        self.kept.push_str(piece);
        self.settle(false)
    }

    /// Returns the rest at the end of the text.
    pub(crate) fn finish(&mut self) -> VisibleText {
        self.settle(true)
    }

    /// Whether a thought was found.
    pub(crate) fn found(&self) -> bool {
        self.found
    }

    /// Whether the text started with a thought that had no opening tag.
    pub(crate) fn untagged(&self) -> bool {
        self.untagged
    }

    fn settle(&mut self, at_end: bool) -> VisibleText {
        let text = std::mem::take(&mut self.kept);
        let (mut rest, mut visible) = (text.as_str(), VisibleText::default());
        while !rest.is_empty() {
            if let Some(close) = self.until {
                match find(rest, close) {
                    Some(at) => {
                        (self.until, self.ended) = (None, true);
                        rest = &rest[at + close.len()..];
                        continue;
                    }
                    None if at_end => return visible,
                    None => {
                        // Inside a thought only the start of its closing tag must be kept.
                        let from = rest.ceil_char_boundary(rest.len().saturating_sub(MAX_TAG_LENGTH));
                        self.kept = rest[from..].to_owned();
                        return visible;
                    }
                }
            }
            let Some(at) = rest.find(['<', '[']) else {
                self.emit(rest, &mut visible);
                break;
            };
            let (before, tag) = rest.split_at(at);
            self.emit(before, &mut visible);
            rest = match match_tag(tag, at_end) {
                TagMatch::Open(close, length) => self.open(tag, close, length, &mut visible),
                TagMatch::Close(length) => self.close(tag, length, &mut visible),
                TagMatch::Perhaps => {
                    tag.clone_into(&mut self.kept);
                    break;
                }
                TagMatch::Text => {
                    self.emit(&tag[..1], &mut visible);
                    &tag[1..]
                }
            };
        }
        visible
    }

    fn open<'t>(&mut self, tag: &'t str, close: &'static str, length: usize, visible: &mut VisibleText) -> &'t str {
        if self.in_code || self.is_quoted() {
            self.quoted += 1;
            self.emit(&tag[..length], visible);
        } else {
            (self.until, self.found) = (Some(close), true);
        }
        &tag[length..]
    }

    fn close<'t>(&mut self, tag: &'t str, length: usize, visible: &mut VisibleText) -> &'t str {
        if self.quoted > 0 || self.is_quoted() {
            self.quoted = self.quoted.saturating_sub(1);
            self.emit(&tag[..length], visible);
        } else {
            // After a thought with both tags, this closing tag is stray: it does not mean that the model's answers
            // start with a thought.
            let untagged = self.untagged || !self.found;
            *self = Self { ended: true, found: true, untagged, ..Self::default() };
            *visible = VisibleText { text: String::new(), void: true };
        }
        &tag[length..]
    }

    fn is_quoted(&self) -> bool {
        self.last.is_some_and(|last| QUOTES.contains(&last))
    }

    fn emit(&mut self, words: &str, visible: &mut VisibleText) {
        let words = if self.ended { words.trim_start() } else { words };
        self.ended &= words.is_empty();
        for letter in words.chars() {
            self.ticks = if letter == '`' { self.ticks + 1 } else { 0 };
            if self.ticks == 3 {
                (self.in_code, self.ticks) = (!self.in_code, 0);
            }
            self.last = Some(letter);
        }
        visible.text.push_str(words);
    }
}

fn match_tag(text: &str, at_end: bool) -> TagMatch {
    let head = text[..text.floor_char_boundary(MAX_TAG_LENGTH)].to_ascii_lowercase();
    for (open, close) in THOUGHT_TAGS {
        if head.starts_with(open) {
            return TagMatch::Open(close, open.len());
        }
        if head.starts_with(close) {
            return TagMatch::Close(close.len());
        }
    }
    // At the end of the text, an incomplete tag is text.
    let perhaps = head.len() == text.len()
        && THOUGHT_TAGS.iter().any(|(open, close)| open.starts_with(&head) || close.starts_with(&head));
    if perhaps && !at_end { TagMatch::Perhaps } else { TagMatch::Text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Removes the thoughts of a text that arrives in pieces of `size` characters.
    fn in_pieces(text: &str, size: usize) -> String {
        let (mut thoughts, mut words) = (Thoughts::default(), String::new());
        let chars: Vec<char> = text.chars().collect();
        let pieces = chars.chunks(size).map(|piece| piece.iter().collect::<String>());
        let mut visible: Vec<VisibleText> = pieces.map(|piece| thoughts.push(&piece)).collect();
        visible.push(thoughts.finish());
        for VisibleText { text, void } in visible {
            if void {
                words.clear();
            }
            words.push_str(&text);
        }
        words
    }

    #[test]
    fn thoughts_are_taken_out_however_they_are_written_and_cut() {
        for (text, words) in [
            ("<think>CONTINUE or COMPLETE?</think>\n\nCOMPLETE", "COMPLETE"),
            ("\n<think>\n你好？\n</think>\n\n您好！<b>x</b> [1]", "\n您好！<b>x</b> [1]"),
            ("CONTINUE or COMPLETE?\n</think>\n\nCOMPLETE", "COMPLETE"),
            ("CONTINUE?</think>COMPLETE", "COMPLETE"),
            ("<THINK>a</Think>b", "b"),
            ("<thinking>a <think> b</thinking> c", "c"),
            ("<thought>a</thought>b", "b"),
            ("[THINK]a < b[/THINK]b", "b"),
            ("<think>never ends", ""),
            ("Well. <think>hm</think> Yes.<think>ok</think>", "Well. Yes."),
            ("<think></think>", ""),
            ("", ""),
            ("a </think", "a </think"),
            ("if a < b and [c] then <thin>", "if a < b and [c] then <thin>"),
        ] {
            assert_eq!(without(text), words, "{text}");
            for size in 1..=text.chars().count() {
                assert_eq!(in_pieces(text, size), words, "{text} in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_stray_closing_tag_is_not_the_end_of_a_first_thought() {
        let (words, thoughts) = split("a</think>b");
        assert_eq!((words.as_str(), thoughts.untagged()), ("b", true));
        let (words, thoughts) = split("<think>a</think>b</think>c");
        assert_eq!((words.as_str(), thoughts.untagged()), ("c", false));
    }

    #[test]
    fn words_after_the_beginning_of_a_tag_are_not_kept_back() {
        for text in ["</thinking，好", "<thinking，好", "<thought é"] {
            let mut thoughts = Thoughts::default();
            assert_eq!(thoughts.push(text).text, text);
            assert_eq!(in_pieces(text, 1), text);
        }
    }

    #[test]
    fn a_tag_that_is_quoted_or_in_code_is_text() {
        for text in [
            "Models write `<think>` and then `</think>`.",
            "它以“<think>”开始，以“</think>”结束。",
            "```xml\n<think>a</think>\n```\ndone",
        ] {
            assert_eq!(without(text), text);
            assert_eq!(in_pieces(text, 1), text);
        }
        assert_eq!(without("<think>```\n</think>```\nx\n```"), "```\nx\n```");
    }

    #[test]
    fn the_texts_of_a_structure_stay_as_they_are() {
        let structure = r#"{"response": "say </think> or <think>"}"#;
        for before in ["", "<think>{}</think>\n", "a {\"b\" </think>", "<think>a</think><think>b</think>"] {
            assert_eq!(before_structure(&format!("{before}{structure}")).trim(), structure, "{before}");
        }
        assert_eq!(before_structure("<think>a</think>I cannot."), "I cannot.");
        assert_eq!(before_structure("no structure"), "no structure");
    }
}
