//! Runs each fuzz target for a second without a fuzzer: random bytes, and mutations of the target's corpus. For a long
//! run, use `cargo +nightly fuzz run <target>` (see CONTRIBUTING.md).

#[path = "../../fuzz/src/lib.rs"]
mod entries;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for each target.
const TIME: Duration = Duration::from_secs(1);

/// Texts that often break parsers.
const TOKENS: &[&str] = &[
    "\"",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\\",
    "\\u0000",
    "\\ud800",
    "null",
    "-0.0",
    "1e400",
    "18446744073709551616",
    "${",
    "$",
    "{a}",
    "{a.b.0}",
    "${HOME}",
    "%2e%2e",
    "..",
    "/",
    "\\\\",
    "@",
    "?",
    "#",
    "&",
    "=",
    "\r\n",
    "\n",
    "\t",
    "</",
    "<",
    "\u{0}",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "中",
    "😀",
    "- ",
    "*a",
    "&a ",
    "!!x ",
    "|\n",
    "---\n",
    "[[[[[[[[",
    "{\"a\":{\"a\":",
    "(?<a>",
    "(a*)*",
    "***",
    "&#x41;",
    "not ",
    " == ",
    " > ",
    " contains ",
    "'",
    "{{a}}",
    "{loop.last.a}",
    "runnable: ",
    "+",
    "${a.output.b}",
    "$${",
    "${SECRET}",
    "\"config\":{",
];

/// One mutation of an input.
#[derive(Clone, Debug)]
enum Edit {
    Put(Index, &'static str),
    Flip(Index, u8),
    Drop(Index, usize),
    Repeat(Index, usize),
    Cut(Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    prop_oneof![
        4 => (at(), select(TOKENS)).prop_map(|(at, token)| Edit::Put(at, token)),
        2 => (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Flip(at, byte)),
        2 => (at(), 1..20_usize).prop_map(|(at, count)| Edit::Drop(at, count)),
        1 => (at(), 1..40_usize).prop_map(|(at, count)| Edit::Repeat(at, count)),
        1 => at().prop_map(Edit::Cut),
    ]
}

fn apply(mut bytes: Vec<u8>, edits: Vec<Edit>) -> Vec<u8> {
    for edit in edits {
        let end = |at: usize, count: usize, bytes: &[u8]| (at + count).min(bytes.len());
        match edit {
            Edit::Put(at, token) => {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..at, token.bytes());
            }
            Edit::Flip(at, byte) if !bytes.is_empty() => {
                let at = at.index(bytes.len());
                bytes[at] ^= byte;
            }
            Edit::Drop(at, count) if !bytes.is_empty() => {
                let at = at.index(bytes.len());
                bytes.drain(at..end(at, count, &bytes));
            }
            Edit::Repeat(at, count) if !bytes.is_empty() => {
                let at = at.index(bytes.len());
                let part = bytes[at..end(at, count, &bytes)].repeat(count);
                bytes.splice(at..at, part);
            }
            Edit::Cut(at) if !bytes.is_empty() => bytes.truncate(at.index(bytes.len())),
            Edit::Flip(..) | Edit::Drop(..) | Edit::Repeat(..) | Edit::Cut(_) => {}
        }
    }
    bytes
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Runs a target for [`TIME`]. An input that panics is minimised and shown as text.
fn feed(name: &str) {
    let (_, target) = entries::TARGETS.into_iter().find(|(known, _)| *known == name).unwrap();
    let corpus = corpus(name);
    corpus.iter().for_each(|input| target(input));
    let mutated = (select(corpus), prop::collection::vec(edit(), 1..12)).prop_map(|(input, edits)| apply(input, edits));
    let input = prop_oneof![1 => prop::collection::vec(any::<u8>(), 0..256), 6 => mutated];
    let config = Config { cases: 32, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let begun = Instant::now();
    while begun.elapsed() < TIME {
        // Inputs are shown as text, so that they can be added to the corpus.
        let shown = input.clone().prop_map(Shown);
        if let Err(failure) = runner.run(&shown, |Shown(bytes)| {
            target(&bytes);
            Ok(())
        }) {
            panic!("{name}: {failure}");
        }
    }
}

struct Shown(Vec<u8>);

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[test]
fn every_target_has_a_corpus() {
    for (name, _) in entries::TARGETS {
        assert!(corpus(name).len() >= 3, "{name}");
    }
}

macro_rules! targets {
    ($($name:ident),+) => {
        $(#[test]
        fn $name() {
            feed(stringify!($name));
        })+
    };
}

targets!(job, agent, template, rules, decision, canonical, mask, condition, workflow, payload, graph, reference);

/// The tests compile the targets with their own dependencies. `cargo fuzz` uses those of `fuzz/Cargo.toml`.
#[test]
fn the_fuzz_workspace_names_every_crate_that_its_targets_use() {
    let (manifest, targets) = (include_str!("../../fuzz/Cargo.toml"), include_str!("../../fuzz/src/lib.rs"));
    let used = targets.lines().filter_map(|line| line.strip_prefix("use ")?.split("::").next());
    let crates: std::collections::BTreeSet<&str> = used.filter(|name| !["std", "super"].contains(name)).collect();
    assert!(crates.contains("types") && crates.contains("serde_json"), "{crates:?}");
    for name in crates {
        assert!(manifest.lines().any(|line| line.starts_with(&format!("{name} = "))), "fuzz/Cargo.toml lacks {name}");
    }
}
