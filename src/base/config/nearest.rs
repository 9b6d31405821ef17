//! "Did you mean": finds the known name that is closest to an unknown one.

/// The candidate with the smallest edit distance to `found`, if it is close enough for a typing mistake. Case and
/// separators are ignored.
pub fn nearest<'a>(found: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = plain(found);
    let limit = (wanted.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&wanted, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns "did you mean `…`?", or an empty text if no candidate is close.
pub fn question<'a>(found: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(found, candidates).map(|name| format!("did you mean `{name}`?")).unwrap_or_default()
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-' | '.')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant_and_nothing_far_away() {
        let names = ["worker.concurrency", "worker.ack_wait", "gateway.listen"];
        assert_eq!(nearest("worker.concurency", names), Some("worker.concurrency"));
        assert_eq!(nearest("worker_ackwait", names), Some("worker.ack_wait"));
        assert_eq!(nearest("colour", names), None);
        assert_eq!(nearest("", names), None);
    }
}
