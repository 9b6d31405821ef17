//! Splits a text into passages. Consecutive paragraphs of a section are joined up to the size limit. A longer paragraph
//! is split at lines or sentences, and each piece repeats the last sentence of the piece before.

use super::source::Passage;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::ops::Range;
use std::path::Path;

/// The largest size of a passage in characters: enough for an answer, and small enough for several in one prompt.
const MAX_CHARS: usize = 800;
/// The longest sentence in characters that two pieces of a paragraph share.
const OVERLAP_CHARS: usize = 200;
/// The largest size of a passage's headings in characters.
const MAX_HEADING: usize = 200;

/// Splits a text into passages, in order.
pub(super) fn split(name: &str, text: &str) -> Vec<Passage> {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let blocks = match extension.to_ascii_lowercase().as_str() {
        "md" | "markdown" => markdown(text),
        _ => paragraphs(text),
    };
    let mut cut = Cut { text, headings: Vec::new(), section: None, passages: Vec::new(), line: (0, 1) };
    for block in blocks {
        match block {
            Block::Heading(level, title) => cut.heading(level, title),
            Block::Text(range) => cut.block(range),
            Block::Gap => cut.flush(),
        }
    }
    cut.flush();
    cut.passages
}

/// A part of a text.
enum Block {
    /// A heading: level and title.
    Heading(usize, String),
    /// A paragraph, list, table or code block.
    Text(Range<usize>),
    /// A part that searches must not find.
    Gap,
}

fn markdown(text: &str) -> Vec<Block> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS;
    let (mut blocks, mut depth, mut title) = (Vec::new(), 0_usize, None::<String>);
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        match event {
            Event::Start(tag) => {
                depth += 1;
                match tag {
                    _ if depth > 1 => {}
                    Tag::Heading { .. } => title = Some(String::new()),
                    Tag::MetadataBlock(_) => {}
                    // A comment, which the author has hidden.
                    Tag::HtmlBlock if text[range.clone()].trim_start().starts_with("<!--") => blocks.push(Block::Gap),
                    _ => blocks.push(Block::Text(range)),
                }
            }
            Event::End(tag) => {
                depth = depth.saturating_sub(1);
                if let (0, TagEnd::Heading(level), Some(title)) = (depth, tag, title.take_if(|_| depth == 0)) {
                    blocks.push(Block::Heading(level as usize, title.trim().to_owned()));
                }
            }
            Event::Text(words) | Event::Code(words) => title.iter_mut().for_each(|title| title.push_str(&words)),
            Event::SoftBreak | Event::HardBreak => title.iter_mut().for_each(|title| title.push(' ')),
            _ => {}
        }
    }
    blocks
}

fn paragraphs(text: &str) -> Vec<Block> {
    let (mut blocks, mut begin, mut end) = (Vec::new(), None, 0);
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let begins = at;
        at += line.len();
        if !line.trim().is_empty() {
            begin.get_or_insert(begins);
            end = at;
        } else if let Some(begin) = begin.take() {
            blocks.push(Block::Text(begin..end));
        }
    }
    blocks.extend(begin.map(|begin| Block::Text(begin..end)));
    blocks
}

struct Cut<'t> {
    text: &'t str,
    headings: Vec<(usize, String)>,
    /// The range of the passage under construction.
    section: Option<Range<usize>>,
    passages: Vec<Passage>,
    /// A position in the text, and its line.
    line: (usize, u32),
}

impl Cut<'_> {
    fn heading(&mut self, level: usize, title: String) {
        self.flush();
        self.headings.retain(|(above, _)| *above < level);
        self.headings.push((level, title));
    }

    fn block(&mut self, block: Range<usize>) {
        let joined = self.section.as_ref().map_or(block.start, |section| section.start)..block.end;
        if chars(&self.text[joined.clone()]) <= MAX_CHARS {
            self.section = Some(joined);
            return;
        }
        self.flush();
        if chars(&self.text[block.clone()]) <= MAX_CHARS {
            self.section = Some(block);
            return;
        }
        for piece in pieces(&self.text[block.clone()]) {
            self.push(block.start + piece.start..block.start + piece.end);
        }
    }

    fn flush(&mut self) {
        if let Some(section) = self.section.take() {
            self.push(section);
        }
    }

    fn push(&mut self, range: Range<usize>) {
        let raw = &self.text[range.clone()];
        let text = raw.trim();
        if text.is_empty() {
            return;
        }
        let begin = range.start + (raw.len() - raw.trim_start().len());
        let titles: Vec<&str> = self.headings.iter().map(|(_, title)| title.as_str()).collect();
        let heading: String = titles.join(" > ").chars().take(MAX_HEADING).collect();
        let line = self.line_of(begin);
        self.passages.push(Passage { heading, line, text: text.to_owned() });
    }

    /// The line of a position. Positions mostly ascend, so the text is scanned about once.
    fn line_of(&mut self, place: usize) -> u32 {
        let (from, line) = if place >= self.line.0 { self.line } else { (0, 1) };
        let breaks = self.text.as_bytes()[from..place].iter().filter(|byte| **byte == b'\n').count();
        self.line = (place, line.saturating_add(u32::try_from(breaks).unwrap_or(u32::MAX)));
        self.line.1
    }
}

/// Splits a paragraph that is too long into pieces of whole sentences. Each piece starts with the last sentence of the
/// piece before.
fn pieces(text: &str) -> Vec<Range<usize>> {
    let parts: Vec<Range<usize>> = sentences(text).into_iter().flat_map(|sentence| bounded(text, sentence)).collect();
    let mut pieces: Vec<Range<usize>> = Vec::new();
    let mut first = 0;
    while first < parts.len() {
        let begin = parts[first].start;
        let mut next = first + 1;
        while next < parts.len() && chars(&text[begin..parts[next].end]) <= MAX_CHARS {
            next += 1;
        }
        pieces.push(begin..parts[next - 1].end);
        let repeats = next < parts.len()
            && next - 1 > first
            && chars(&text[parts[next - 1].clone()]) <= OVERLAP_CHARS
            && chars(&text[parts[next - 1].start..parts[next].end]) <= MAX_CHARS;
        first = if repeats { next - 1 } else { next };
    }
    pieces
}

/// Splits a sentence that is longer than a passage.
fn bounded(text: &str, sentence: Range<usize>) -> Vec<Range<usize>> {
    let (mut pieces, mut begin) = (Vec::new(), sentence.start);
    for (count, (at, _)) in text[sentence.clone()].char_indices().enumerate() {
        if count > 0 && count % MAX_CHARS == 0 {
            pieces.push(begin..sentence.start + at);
            begin = sentence.start + at;
        }
    }
    pieces.push(begin..sentence.end);
    pieces
}

/// The ranges of the sentences in a text. A line break ends a sentence, too. The ranges cover the whole text.
pub fn sentences(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut begin) = (Vec::new(), 0);
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let following = characters.peek().map(|(_, next)| *next);
        let ends = match c {
            '。' | '！' | '？' | '；' | '\n' => true,
            '.' | '!' | '?' => following.is_none_or(char::is_whitespace),
            _ => false,
        };
        if !ends {
            continue;
        }
        let mut end = at + c.len_utf8();
        // Closing quotation marks belong to the sentence.
        while let Some((at, c)) = characters.next_if(|(_, c)| matches!(c, '”' | '’' | '」' | '』' | '）' | '"' | ')'))
        {
            end = at + c.len_utf8();
        }
        found.push(begin..end);
        begin = end;
    }
    if begin < text.len() {
        found.push(begin..text.len());
    }
    found
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, text: &str) -> Vec<(String, u32, String)> {
        split(name, text).into_iter().map(|passage| (passage.heading, passage.line, passage.text)).collect()
    }

    #[test]
    fn markdown_is_cut_by_its_headings() {
        let text = "---\ntitle: x\n---\n前言。\n\n# 售后\n\n## 退货\n七天内可退。\n\n- 一\n- 二\n\n## 保修 **`A1`** 起\n\n<!-- 内部 -->\n\n两年。\n\n```sh\n# no heading\n```\n\nOther\n=====\ntext\n";
        let owned = |heading: &str, line: u32, text: &str| (heading.to_owned(), line, text.to_owned());
        assert_eq!(
            shown("a.md", text),
            [
                owned("", 4, "前言。"),
                owned("售后 > 退货", 9, "七天内可退。\n\n- 一\n- 二"),
                owned("售后 > 保修 A1 起", 18, "两年。\n\n```sh\n# no heading\n```"),
                owned("Other", 26, "text"),
            ]
        );
    }

    #[test]
    fn text_is_cut_by_its_paragraphs_and_short_ones_stay_together() {
        let long = "x".repeat(500);
        let text = format!("\n\none\ntwo\n \nthree\r\n\r\n{long}\n\n# {long}");
        let found = shown("a.txt", &text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].2.starts_with("one\ntwo\n \nthree") && found[0].2.ends_with(&long), "{found:?}");
        assert_eq!((found[0].1, found[1].1, found[1].0.as_str()), (3, 10, ""));
    }

    #[test]
    fn a_long_paragraph_is_cut_at_sentences_that_overlap_and_nothing_is_lost() {
        let sentence = |n: usize| format!("第{n}句话说的是同一件事情，只是多了一些字。");
        let text: String = (0..100).map(sentence).collect();
        let found = split("a.md", &text);
        assert!(found.len() > 2);
        for (at, passage) in found.iter().enumerate() {
            assert!(passage.text.chars().count() <= MAX_CHARS && passage.text.ends_with('。'), "{}", passage.text);
            if at > 0 {
                let last = sentences(&found[at - 1].text).pop().map(|range| found[at - 1].text[range].to_owned());
                assert!(passage.text.starts_with(&last.unwrap()), "{}", passage.text);
            }
        }
        assert!((0..100).all(|n| found.iter().any(|passage| passage.text.contains(&sentence(n)))));
        // A text without sentence ends is split at the limit.
        let found = split("a.txt", &"字".repeat(2 * MAX_CHARS + 1));
        assert_eq!(found.iter().map(|passage| passage.text.chars().count()).collect::<Vec<_>>(), [800, 800, 1]);
    }

    #[test]
    fn sentences_are_the_whole_text() {
        for text in ["", "一。二！三？", "One. Two is v1.2! “三。”四", "a\nb\n", "他说：“好。”然后走了。"]
        {
            let parts: Vec<&str> = sentences(text).into_iter().map(|range| &text[range]).collect();
            assert_eq!(parts.concat(), text);
        }
        assert_eq!(sentences("v1.2 is out. 3.5 is not.").len(), 2);
    }
}
