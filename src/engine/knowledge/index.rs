//! The search index over the passages of one agent, ranked by BM25.

use super::words;
use definitions::knowledge::source::{Passage, Source};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use tantivy::collector::TopDocs;
use tantivy::directory::RamDirectory;
use tantivy::query::{BooleanQuery, BoostQuery, Occur, Query, TermQuery};
use tantivy::schema::{Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::tokenizer::TokenizerManager;
use tantivy::{DocId, DocSet, ReloadPolicy, Searcher, TantivyDocument, Term};
use types::canonical;

/// Number of passages for one reply.
pub(crate) const HITS_PER_REPLY: usize = 4;

/// Share of the question's words that a hit must contain; rare words weigh more. The BM25 score is no such measure,
/// because it depends on the number of passages.
const MIN_COVERAGE: f64 = 0.2;
/// Weight of a word of the decided response, relative to a word of the question.
const RESPONSE_WEIGHT: f32 = 0.25;
/// Number of candidates per requested passage, because some are below the floor.
const CANDIDATES_PER_HIT: usize = 4;
/// Below this number of passages, no word counts as common.
const MIN_CORPUS_SIZE: u64 = 50;
/// Memory in bytes that tantivy may use while it builds one index.
const INDEXING_MEMORY: usize = 20_000_000;

/// A passage that matches a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hit {
    /// Name of the source that contains it.
    pub source: String,
    /// The headings above it in its source.
    pub heading: String,
    /// Line at which it starts.
    pub line: u32,
    /// Text of the passage, unchanged.
    pub text: String,
    /// BM25 score. Comparable only within one search.
    pub score: f32,
}

/// An index could not be built.
#[derive(Debug, thiserror::Error)]
#[error("the knowledge of agent `{agent_id}` cannot be indexed: {source}")]
pub struct IndexError {
    /// Id of the agent.
    pub agent_id: String,
    /// The error of the search library.
    pub source: tantivy::TantivyError,
}

/// The search index of one agent.
pub struct Index {
    version: String,
    /// Name of the source and passage, by their number in the index.
    passages: Vec<(Arc<str>, Passage)>,
    searcher: Searcher,
    text: Field,
}

impl Index {
    /// Builds the index of an agent's sources, which must be sorted by name. Takes seconds for a hundred thousand
    /// passages.
    pub fn build(agent_id: &str, sources: Vec<Source>) -> Result<Self, IndexError> {
        let version = version(sources.iter().map(|source| (source.entry.source.as_str(), source.entry.hash.as_str())));
        let mut passages = Vec::new();
        for Source { entry, passages: of_source } in sources {
            let name: Arc<str> = entry.source.into();
            passages.extend(of_source.into_iter().map(|passage| (Arc::clone(&name), passage)));
        }
        let (searcher, text) =
            searcher(&passages).map_err(|source| IndexError { agent_id: agent_id.to_owned(), source })?;
        Ok(Self { version, passages, searcher, text })
    }

    /// A hash of the sources: it changes when they do.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Number of passages.
    pub fn len(&self) -> usize {
        self.passages.len()
    }

    /// Whether the index has no passages.
    pub fn is_empty(&self) -> bool {
        self.passages.is_empty()
    }

    /// The best passages for a question, best first; equal scores in the order of the sources. Passages that have too
    /// few of the question's words are no hits. The words of `response`, the reply decided so far, influence the
    /// ranking.
    pub fn search(&self, question: &str, response: &str, limit: usize) -> Vec<Hit> {
        let asked: Vec<Term> = self.terms(question);
        if asked.is_empty() || self.is_empty() || limit == 0 {
            return Vec::new();
        }
        let known: HashSet<&Term> = asked.iter().collect();
        let meant = self.terms(response).into_iter().filter(|term| !known.contains(term));
        let of = |term: Term| -> Box<dyn Query> { Box::new(TermQuery::new(term, IndexRecordOption::WithFreqs)) };
        let meant = meant.map(|term| -> Box<dyn Query> { Box::new(BoostQuery::new(of(term), RESPONSE_WEIGHT)) });
        let words = asked.iter().cloned().map(of).chain(meant).map(|query| (Occur::Should, query)).collect();
        let top = TopDocs::with_limit(limit.saturating_mul(CANDIDATES_PER_HIT)).order_by_score();
        // A search in memory does not fail.
        let found = self.searcher.search(&BooleanQuery::new(words), &top).unwrap_or_default();
        let mut found: Vec<(f32, DocId)> = found.into_iter().map(|(score, address)| (score, address.doc_id)).collect();
        found.sort_by(|(a, first), (b, second)| b.total_cmp(a).then(first.cmp(second)));
        let covered = self.covered(&asked, &found);
        let hits = found.iter().zip(covered).filter(|(_, share)| *share >= MIN_COVERAGE);
        hits.filter_map(|((score, number), _)| self.hit(*number, *score)).take(limit).collect()
    }

    fn terms(&self, text: &str) -> Vec<Term> {
        words::terms(text).iter().map(|word| Term::from_field_text(self.text, word)).collect()
    }

    fn hit(&self, number: DocId, score: f32) -> Option<Hit> {
        let (source, passage) = self.passages.get(number as usize)?;
        let Passage { heading, line, text } = passage.clone();
        Some(Hit { source: source.to_string(), heading, line, text, score: (score * 100.0).round() / 100.0 })
    }

    /// For each passage, the weighted share of the question's words that it contains.
    fn covered(&self, asked: &[Term], found: &[(f32, DocId)]) -> Vec<f64> {
        let (mut shares, mut total) = (vec![0.0; found.len()], 0.0);
        for term in asked {
            let of_term = self.searcher.segment_readers().iter().filter_map(|segment| {
                let words = segment.inverted_index(self.text).ok()?;
                words.read_postings(term, IndexRecordOption::Basic).ok()?
            });
            let mut weight = rarity(0, self.passages.len() as u64);
            // There is one segment, see `searcher`.
            if let Some(mut postings) = of_term.into_iter().next() {
                weight = rarity(u64::from(postings.doc_freq()), self.passages.len() as u64);
                let mut in_order: Vec<usize> = (0..found.len()).collect();
                in_order.sort_by_key(|at| found[*at].1);
                for at in in_order {
                    let number = found[at].1;
                    if postings.doc() <= number && postings.seek(number) == number {
                        shares[at] += weight;
                    }
                }
            }
            total += weight;
        }
        shares.iter().map(|share| share / total).collect()
    }
}

/// The weight of a word: the fewer passages contain it, the more.
#[allow(clippy::cast_precision_loss, reason = "no index has 2^52 passages")]
fn rarity(with_it: u64, all: u64) -> f64 {
    let all = all.max(MIN_CORPUS_SIZE) as f64;
    let with_it = with_it as f64;
    (1.0 + (all - with_it + 0.5) / (with_it + 0.5)).ln()
}

/// The version of these sources (name, hash), which must be sorted by name.
pub(super) fn version<'s>(sources: impl Iterator<Item = (&'s str, &'s str)>) -> String {
    canonical::hash(&json!(sources.collect::<Vec<_>>()))
}

fn searcher(passages: &[(Arc<str>, Passage)]) -> tantivy::Result<(Searcher, Field)> {
    let cutting = TextFieldIndexing::default().set_tokenizer("mixed").set_index_option(IndexRecordOption::WithFreqs);
    let mut schema = Schema::builder();
    let text = schema.add_text_field("text", TextOptions::default().set_indexing_options(cutting));
    let tokenizers = TokenizerManager::new();
    tokenizers.register("mixed", words::analyzer());
    let index = tantivy::Index::builder().schema(schema.build()).tokenizers(tokenizers);
    // One segment, so that the number of a document is the position of its passage, and equal scores have one order.
    let mut writer = index.single_segment_index_writer(RamDirectory::create(), INDEXING_MEMORY)?;
    for (_, passage) in passages {
        let mut document = TantivyDocument::new();
        document.add_text(text, format!("{}\n{}", passage.heading, passage.text));
        writer.add_document(document)?;
    }
    let reader = writer.finalize()?.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?;
    Ok((reader.searcher(), text))
}
