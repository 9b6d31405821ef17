//! Cases for the kept prompts of model calls.

use super::kit::*;
use serde_json::json;
use std::sync::Arc;
use storage::store::*;
use types::step::StepRecord;

pub async fn a_prompt_is_kept_with_the_first_record_of_its_step(store: Arc<dyn Store>) {
    let prompted =
        |key: &str, bytes: &[u8]| Arc::new(StepRecord { prompt: Some(bytes.into()), ..(*step(key, json!(1))).clone() });
    let taken = grant(&store, "s", 1).await;
    let first =
        store.record(record(&taken, "m-1", vec![prompted("0/decide", &[1]), step("0/act", json!(2))], None)).await;
    assert_eq!(first.unwrap(), [Recorded::New, Recorded::New]);
    let again = store.record(record(&taken, "m-1", vec![prompted("0/decide", &[2])], None)).await.unwrap();
    assert!(matches!(&again[..], [Recorded::Existing(step)] if step.prompt.is_none()), "{again:?}");
    let change = Change { steps: vec![prompted("1/decide", &[0, 255])], ..change(&taken.session, "m-1") };
    store.commit(commit(&taken, 1, Some(change))).await.unwrap();
    let kept = async |turn: &str, key: &str| store.prompt("s", turn, key).await.unwrap();
    assert_eq!(kept("m-1", "0/decide").await, Some(vec![1]));
    assert_eq!(kept("m-1", "1/decide").await, Some(vec![0, 255]));
    assert_eq!(
        (kept("m-1", "0/act").await, kept("m-1", "9/decide").await, kept("m-2", "0/decide").await),
        (None, None, None)
    );
    let steps = store.steps("s", "m-1").await.unwrap();
    assert!(steps.len() == 3 && steps.iter().all(|step| step.prompt.is_none()), "readers of steps do not read prompts");
    store.erase_records("s").await.unwrap();
    assert_eq!((kept("m-1", "0/decide").await, kept("m-1", "1/decide").await), (None, None));
}
