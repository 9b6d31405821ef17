//! Splits text into words for the search: Chinese with jieba, including the shorter words within long ones; English in
//! lower case and stemmed. Stop words are dropped.

use std::collections::HashSet;
use std::sync::LazyLock;
use tantivy::tokenizer::{
    Language, LowerCaser, RemoveLongFilter, Stemmer, StopWordFilter, TextAnalyzer, Token, TokenStream, Tokenizer,
};

/// Maximum number of words of a question.
pub(super) const MAX_TERMS: usize = 64;
/// Maximum number of characters of a question that are read.
const MAX_QUESTION_CHARS: usize = 2_000;
/// Maximum length of a word in bytes. Longer tokens, such as keys and URLs, are dropped.
const MAX_WORD: usize = 100;

/// Loaded when the first text is split, because the dictionary takes tens of megabytes that some processes never need.
static JIEBA: LazyLock<jieba_rs::Jieba> = LazyLock::new(jieba_rs::Jieba::new);

/// Function words, and words that are typical for questions.
const STOP_WORDS: &str = "\
    的 了 吗 呢 吧 啊 呀 哦 嗯 哈 么 嘛 是 在 有 和 与 及 或 也 都 就 还 又 再 很 太 不 没 没有 而 但 但是 因为 所以 如果 \
    我 你 您 他 她 它 们 我们 你们 您们 他们 咱们 自己 大家 这 那 这个 那个 这些 那些 这里 那里 这样 那样 其 该 此 \
    什么 什么时候 多少钱 有没有 怎么 怎样 怎么样 怎么办 如何 为什么 为何 哪 哪个 哪些 哪里 哪儿 谁 几 多少 多久 多长 多大 几时 何时 是不是 能不能 可不可以 \
    想 要 会 能 可以 可 请 请问 麻烦 帮 帮忙 给 让 把 被 从 到 对 对于 关于 上 下 中 里 个 一个 一下 一些 一点 \
    问 知道 告诉 说 看 一样 时候 现在 你好 您好 谢谢 好 好的 嗨 \
    i me my we our us you your he him his she her its them what which who whom whose when where why how do does did done \
    doing have has had having can could may might should shall would must am been being were from about than so just \
    too very here all any some more most other own same only also please tell know want need like get hello hi hey thanks \
    thank ok okay yes s t m re ve ll d";

/// The analyzer for passages and questions.
pub(super) fn analyzer() -> TextAnalyzer {
    let stop_words = STOP_WORDS.split_whitespace().map(str::to_owned);
    let cut = TextAnalyzer::builder(MixedTokenizer).filter(RemoveLongFilter::limit(MAX_WORD)).filter(LowerCaser);
    let filtered = cut.filter_dynamic(StopWordFilter::remove(stop_words));
    // Lucene's list, which has only function words.
    match StopWordFilter::new(Language::English) {
        Some(english) => filtered.filter_dynamic(english).filter_dynamic(Stemmer::new(Language::English)).build(),
        None => filtered.filter_dynamic(Stemmer::new(Language::English)).build(),
    }
}

/// The distinct words of a question in order.
pub(crate) fn terms(text: &str) -> Vec<String> {
    static ANALYZER: LazyLock<TextAnalyzer> = LazyLock::new(analyzer);
    let end = text.char_indices().nth(MAX_QUESTION_CHARS).map_or(text.len(), |(end, _)| end);
    let (mut terms, mut seen) = (Vec::new(), HashSet::new());
    let mut analyzer = ANALYZER.clone();
    let mut stream = analyzer.token_stream(&text[..end]);
    while terms.len() < MAX_TERMS && stream.advance() {
        let word = &stream.token().text;
        if seen.insert(word.clone()) {
            terms.push(word.clone());
        }
    }
    terms
}

/// Tokenizer for texts that mix Chinese and English.
#[derive(Clone)]
struct MixedTokenizer;

impl Tokenizer for MixedTokenizer {
    type TokenStream<'a> = Words;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> Words {
        let cut =
            JIEBA.cut_for_search(text, true).into_iter().filter(|token| token.word.chars().any(char::is_alphanumeric));
        let tokens = cut.enumerate().map(|(position, token)| Token {
            offset_from: token.byte_start,
            offset_to: token.byte_end,
            position,
            text: token.word.to_owned(),
            position_length: 1,
        });
        Words { tokens: tokens.collect(), next: 0 }
    }
}

struct Words {
    tokens: Vec<Token>,
    /// Position of the current token plus one.
    next: usize,
}

impl TokenStream for Words {
    fn advance(&mut self) -> bool {
        self.next += 1;
        self.next <= self.tokens.len()
    }

    fn token(&self) -> &Token {
        &self.tokens[self.next - 1]
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.tokens[self.next - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_both_languages_are_found_in_one_text() {
        let found = terms("请问Fibre 500的安装费（installation fees）是多少？保修期呢，保修期？");
        for word in ["fibr", "500", "安装费", "instal", "fee", "保修期", "保修"] {
            assert!(found.iter().any(|term| term == word), "{word}: {found:?}");
        }
        assert!(!found.iter().any(|term| ["请问", "是", "多少", "（", "？"].contains(&term.as_str())), "{found:?}");
        assert_eq!(found.iter().filter(|term| *term == "保修期").count(), 1);
        assert_eq!(terms("Routers RETURNED, returning a router!"), ["router", "return"]);
    }

    #[test]
    fn a_text_without_words_or_without_end_is_no_trouble() {
        for text in ["", "？！…", "你好", "thanks", "\u{0}\u{fffd}"] {
            assert_eq!(terms(text), [""; 0], "{text:?}");
        }
        let long: String = (0..5_000).map(|n| format!("w{n} ")).collect();
        assert_eq!(terms(&long).len(), MAX_TERMS);
    }
}
