//! The prompt of a model call in the form in which its step keeps it: JSON, compressed.

use super::message::PromptMessage;
use decisions::event::value_masked;
use libflate::deflate;
use serde_json::Value;
use std::io::{self, Read, Write};
use std::sync::Arc;
use types::excerpt::cut;
use types::prompt::{KeptMessage, KeptPrompt};

/// The most bytes of a kept prompt, compressed. A longer prompt is cut.
pub const MAX_KEPT: usize = 64 * 1024;
/// The most bytes of the texts of a kept prompt. It bounds the work of the compression.
const MAX_TEXT: usize = 4 * 1024 * 1024;

/// Masks the messages and compresses them, at most [`MAX_KEPT`] bytes.
pub(super) fn encode(messages: &[PromptMessage], mask: &dyn Fn(&str) -> String) -> Option<Arc<[u8]>> {
    let messages: Vec<KeptMessage> = messages.iter().map(|message| kept(message, mask)).collect();
    let bytes = messages.iter().map(size).sum::<usize>();
    let mut budget = MAX_TEXT;
    loop {
        let prompt = within(&messages, bytes, budget);
        let compressed = serde_json::to_vec(&prompt).map_err(io::Error::other).and_then(|json| compress(&json)).ok()?;
        if compressed.len() <= MAX_KEPT || budget == 0 {
            return Some(compressed.into());
        }
        // The ratio of the compression is about the same for the beginning. Each round is smaller by a tenth at least.
        budget = budget.min(bytes).saturating_mul(MAX_KEPT) / compressed.len() * 9 / 10;
    }
}

/// Reads a kept prompt.
pub fn decode(compressed: &[u8]) -> io::Result<KeptPrompt> {
    let mut json = Vec::new();
    deflate::Decoder::new(compressed).read_to_end(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}

fn compress(json: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = deflate::Encoder::new(Vec::new());
    encoder.write_all(json)?;
    encoder.finish().into_result()
}

fn kept(message: &PromptMessage, mask: &dyn Fn(&str) -> String) -> KeptMessage {
    let PromptMessage { role, content, images, tool_calls, tool_call_id, extra } = message;
    let value = |value: &Value| value_masked(value, mask);
    let plain = |value: Result<Value, serde_json::Error>| value.unwrap_or_default();
    KeptMessage {
        role: plain(serde_json::to_value(role)).as_str().unwrap_or_default().to_owned(),
        content: mask(content),
        images: images.iter().map(|image| mask(image)).collect(),
        tool_calls: tool_calls.iter().map(|call| value(&plain(serde_json::to_value(call)))).collect(),
        tool_call_id: tool_call_id.clone(),
        extra: extra.iter().map(|(name, field)| (name.clone(), value(field))).collect(),
    }
}

/// About the bytes of a message.
fn size(message: &KeptMessage) -> usize {
    let json = |value: &Value| value.to_string().len();
    let images = message.images.iter().map(String::len).sum::<usize>();
    let calls = message.tool_calls.iter().map(json).sum::<usize>();
    message.content.len() + images + calls + message.extra.values().map(json).sum::<usize>()
}

/// The beginning of the prompt with at most `budget` bytes of texts. The first message that does not fit keeps the
/// beginning of its text, and nothing else.
fn within(messages: &[KeptMessage], bytes: usize, budget: usize) -> KeptPrompt {
    let (mut left, mut shown) = (budget, Vec::new());
    for message in messages {
        let size = size(message);
        if size > left {
            let content = match cut(&message.content, left) {
                // The text fits, but the rest of the message does not.
                std::borrow::Cow::Borrowed(text) => format!("{text}… [{} of {size} bytes]", text.len()),
                std::borrow::Cow::Owned(text) => text,
            };
            let (images, tool_calls, extra) = Default::default();
            shown.push(KeptMessage { content, images, tool_calls, extra, ..message.clone() });
            return KeptPrompt { messages: shown, bytes: bytes as u64, cut: true };
        }
        left -= size;
        shown.push(message.clone());
    }
    KeptPrompt { messages: shown, bytes: bytes as u64, cut: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ModelToolCall, PromptRole};
    use serde_json::{Map, json};

    fn plain(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn a_prompt_is_read_as_it_was_with_secrets_masked() {
        let call = ModelToolCall::new("c1", "eta", r#"{"token": "hidden"}"#);
        let extra = Map::from_iter([("reasoning_content".to_owned(), json!("hidden thought"))]);
        let pictures = PromptMessage {
            images: vec!["https://h/hidden.png".into()],
            ..PromptMessage::new(PromptRole::User, "看 hidden\u{0}“”")
        };
        let messages = [
            PromptMessage::new(PromptRole::System, "系统"),
            pictures,
            PromptMessage::assistant("", vec![call]).with_extra(extra),
            PromptMessage::tool("c1", "{}"),
        ];
        let found = decode(&encode(&messages, &|text| text.replace("hidden", "***")).unwrap()).unwrap();
        assert!(!found.cut && found.bytes > 0);
        assert_eq!(found.messages[0].content, "系统");
        assert_eq!((found.messages[1].role.as_str(), found.messages[1].content.as_str()), ("user", "看 ***\u{0}“”"));
        assert_eq!(found.messages[1].images, ["https://h/***.png"]);
        assert_eq!(found.messages[2].tool_calls[0]["function"]["arguments"], r#"{"token": "***"}"#);
        assert_eq!(found.messages[2].extra["reasoning_content"], "*** thought");
        assert_eq!(found.messages[3].tool_call_id.as_deref(), Some("c1"));
    }

    #[test]
    fn a_large_prompt_is_cut_to_its_limit_with_a_mark() {
        // Numbers without a pattern compress badly.
        let mut state = 7_u64;
        let mut noise = |bytes: usize| -> String {
            std::iter::from_fn(|| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                Some(char::from(b'!' + (state >> 33) as u8 % 90))
            })
            .take(bytes)
            .collect()
        };
        let first = noise(30_000);
        let messages = [
            PromptMessage::new(PromptRole::System, first.clone()),
            PromptMessage::new(PromptRole::User, noise(200_000)),
            PromptMessage::new(PromptRole::User, "后来"),
        ];
        let kept = encode(&messages, &plain).unwrap();
        assert!(kept.len() <= MAX_KEPT && kept.len() > MAX_KEPT / 2, "{} bytes", kept.len());
        let found = decode(&kept).unwrap();
        assert!(found.cut && found.messages.len() == 2);
        assert_eq!(found.bytes, 230_006);
        assert_eq!(found.messages[0].content, first);
        assert!(found.messages[1].content.ends_with(" of 200000 bytes]"), "the cut text has a mark");
        // A long text that compresses well is whole.
        let long = "重复的话。".repeat(50_000);
        let found = decode(&encode(&[PromptMessage::new(PromptRole::User, long.clone())], &plain).unwrap()).unwrap();
        assert!(!found.cut && found.messages[0].content == long);
    }

    #[test]
    fn what_is_no_prompt_is_refused() {
        assert!(decode(b"").is_err() && decode(b"{}").is_err());
    }
}
