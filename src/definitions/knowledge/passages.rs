//! Cutting a text into passages: the paragraphs of one section together, as far as they fit; a paragraph that is longer by
//! itself at its lines or sentences, the pieces overlapping by one.

use super::source::Passage;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::ops::Range;
use std::path::Path;

/// The most characters of a passage: enough to answer from, little enough for several in one prompt.
const MAX_CHARS: usize = 800;
/// The most characters that a piece of a long paragraph repeats of the one before.
const OVERLAP: usize = 200;
/// The most characters of the headings above a passage.
const MAX_HEADING: usize = 200;

/// The passages of a text, in order.
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

/// What a text consists of.
enum Block {
    /// Level and title.
    Heading(usize, String),
    /// A paragraph, list, table or listing.
    Text(Range<usize>),
    /// Something that is not to be found.
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
                    // What its author has hidden.
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
    /// What is gathered of the section at hand.
    section: Option<Range<usize>>,
    passages: Vec<Passage>,
    /// A place in the text, and the line that it is on.
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

    /// The line of a place. Places come nearly in order, so that the text is read about once.
    fn line_of(&mut self, place: usize) -> u32 {
        let (from, line) = if place >= self.line.0 { self.line } else { (0, 1) };
        let breaks = self.text.as_bytes()[from..place].iter().filter(|byte| **byte == b'\n').count();
        self.line = (place, line.saturating_add(u32::try_from(breaks).unwrap_or(u32::MAX)));
        self.line.1
    }
}

/// The pieces of a paragraph that is too long: as many sentences as fit, the last one again at the next one's head.
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
            && chars(&text[parts[next - 1].clone()]) <= OVERLAP
            && chars(&text[parts[next - 1].start..parts[next].end]) <= MAX_CHARS;
        first = if repeats { next - 1 } else { next };
    }
    pieces
}

/// A sentence in pieces of the legal length, where it has no end before that.
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

/// The sentences of a text; a line's end ends one, too. Together they are the whole text.
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
        // What closes a quotation belongs to its sentence.
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
        // Without any end of a sentence it is cut where it must be.
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
