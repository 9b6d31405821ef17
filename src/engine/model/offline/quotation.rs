//! The reply that the offline model writes from knowledge: a quotation of the best passage.

use crate::knowledge::terms;
use crate::model::Grounds;
use crate::prompt::is_chinese;
use definitions::knowledge::passages::sentences;
use std::collections::HashSet;

/// Maximum number of bytes that are quoted after the first sentence.
const MAX_QUOTED: usize = 300;

/// The decided reply, followed by a labelled quotation from the best passage.
pub(super) fn quotation(grounds: &Grounds, question: &str) -> String {
    let Some(best) = grounds.hits.first() else { return grounds.decided.clone() };
    let (words, source) = (quoted(&best.text, question), &best.source);
    let line = match is_chinese(question) {
        true => format!("（离线模型）《{source}》：{words}"),
        false => format!("(offline model) {source}: {words}"),
    };
    if grounds.decided.is_empty() { line } else { format!("{}\n{line}", grounds.decided) }
}

/// The sentence of a passage that shares most words with the question (the first one of several), and the short
/// sentences after it.
fn quoted(passage: &str, question: &str) -> String {
    let asked: HashSet<String> = terms(question).into_iter().collect();
    let sentences: Vec<&str> = sentences(passage).into_iter().map(|range| passage[range].trim()).collect();
    let shared = |sentence: &str| terms(sentence).iter().filter(|word| asked.contains(*word)).count();
    let best = (0..sentences.len()).rev().max_by_key(|at| shared(sentences[*at])).unwrap_or(0);
    let (mut quoted, mut end) = (0, best);
    while end < sentences.len() && (end == best || quoted + sentences[end].len() <= MAX_QUOTED) {
        quoted += sentences[end].len();
        end += 1;
    }
    let plain = |sentence: &&str| sentence.trim_start_matches(['-', '*', '+', '>', '#', '|', ' ']).replace("**", "");
    let parts: Vec<String> = sentences[best..end].iter().map(plain).filter(|sentence| !sentence.is_empty()).collect();
    let blank = if is_chinese(passage) { "" } else { " " };
    parts.join(blank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::Hit;
    use crate::model::offline::Offline;
    use crate::model::{Facts, Model, ModelRequest};
    use std::sync::Arc;

    #[tokio::test]
    async fn from_knowledge_it_quotes_the_best_passage_below_what_was_decided() {
        let said = async |decided: &str, text: &str, message: &str| {
            let hit = Hit { source: "kb/a.md".into(), heading: String::new(), line: 1, text: text.into(), score: 1.0 };
            let grounds = Some(Arc::new(Grounds { decided: decided.into(), hits: vec![hit] }));
            let facts = Facts { message: message.into(), grounds, ..Facts::default() };
            let request = ModelRequest::new(Vec::new()).with_facts(facts);
            Offline::new().complete(request).await.unwrap().content
        };
        let text = "我们卖车。- **电池**保修八年。运费由我们承担。";
        assert_eq!(
            said("请稍等。", text, "电池保修多久").await,
            "请稍等。\n（离线模型）《kb/a.md》：电池保修八年。运费由我们承担。"
        );
        let long = format!("One. Routers have lights. {}.", "x".repeat(MAX_QUOTED));
        assert_eq!(said("", &long, "which light").await, "(offline model) kb/a.md: Routers have lights.");
        assert_eq!(
            said("", "- one\n- two routers\n- three", "a router").await,
            "(offline model) kb/a.md: two routers three"
        );
    }
}
