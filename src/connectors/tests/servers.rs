//! The addresses of the servers that `tests/run` starts.

use base::config::Environment;

/// The URL in a variable. Without it the test is skipped, because not every machine has the server.
pub(super) fn url(variable: &str) -> Option<String> {
    let url = Environment::from_process().get(variable).map(str::to_owned);
    if url.is_none() {
        eprintln!("skipped: {variable} is not set; tests/run sets it");
    }
    url
}
