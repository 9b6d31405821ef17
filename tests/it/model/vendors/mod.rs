//! Exchanges with the servers of well-known vendors, in the documented form. Each folder is a vendor: `settings.toml`
//! has the settings that docs/models.md recommends, each `.http` file is a conversation (see [`Recording`]). A server
//! on a local port accepts only the recorded requests, in order, and sends exactly the vendor's bytes.

mod recording;
mod vendor;

use engine::model::delta::{Piece, deltas};
use engine::model::{Model, ModelError, ModelReply, ModelRequest, PromptMessage, PromptRole, ResponseSchema, ToolSpec};
use recording::{Recording, Reply};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vendor::Vendor;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/model/vendors")
}

/// All recordings: `<vendor>/<name>`.
fn recordings() -> Vec<(String, String)> {
    let names = |path: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        let mut names: Vec<_> = entries.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let vendors = names(&folder()).into_iter().filter(|name| !name.ends_with(".rs"));
    let found = vendors.flat_map(|vendor| {
        let files = names(&folder().join(&vendor)).into_iter();
        files.filter_map(move |file| Some((vendor.clone(), file.strip_suffix(".http")?.to_owned())))
    });
    found.collect()
}

/// The first request of every recording.
fn question(tools: bool, structured: bool) -> ModelRequest {
    let object = |property: &str| {
        let text = json!({"type": "string"});
        Arc::new(
            json!({"type": "object", "properties": {property: text}, "required": [property], "additionalProperties": false}),
        )
    };
    let messages = vec![
        PromptMessage::new(PromptRole::System, "You are the service desk of a parcel company."),
        PromptMessage::new(PromptRole::User, "When does parcel A1 arrive?"),
    ];
    let mut request = ModelRequest::new(messages);
    if tools {
        let parameters = object("parcel_id");
        request = request.with_tools(vec![ToolSpec {
            name: "parcel_status".into(),
            description: "Where a parcel is.".into(),
            parameters,
        }]);
    }
    if structured {
        request =
            request.with_schema(ResponseSchema { name: "arrival".into(), strict: true, schema: object("arrives") });
    }
    request
}

/// The next request of a conversation, with the response and the results of its calls.
fn following(request: &ModelRequest, reply: &ModelReply) -> ModelRequest {
    let mut messages = request.messages.to_vec();
    let said = PromptMessage::assistant(&*reply.content, reply.tool_calls.clone());
    messages.push(said.with_extra(reply.extra.clone()));
    let results = reply.tool_calls.iter();
    messages.extend(results.map(|call| PromptMessage::tool(&*call.id, r#"{"arrives":"tomorrow"}"#)));
    ModelRequest { messages: Arc::new(messages), ..request.clone() }
}

async fn ask(model: &Arc<dyn Model>, request: ModelRequest, in_pieces: bool) -> Result<ModelReply, ModelError> {
    if !in_pieces {
        return model.complete(request).await;
    }
    let (sink, mut pieces) = deltas();
    let read = async {
        let mut shown = String::new();
        while let Some(Piece { content, anew }) = pieces.next().await {
            assert!(!anew, "a response must not restart");
            shown.push_str(&content);
        }
        shown
    };
    let (reply, shown) = tokio::join!(model.stream(request, sink), read);
    if let Ok(reply) = &reply {
        let whole = shown.is_empty();
        assert!(whole || shown == reply.content, "the reader has seen `{shown}` of `{}`", reply.content);
    }
    reply
}

/// Holds the conversation of a recording. Returns the replies.
async fn converse(model: &Arc<dyn Model>, recording: &Recording) -> Vec<Reply> {
    let first = &recording.exchanges[0].request.body;
    let in_pieces = first["stream"] == true;
    let mut request = question(first.get("tools").is_some(), first.get("response_format").is_some());
    let mut replies = Vec::new();
    loop {
        match ask(model, request.clone(), in_pieces).await {
            Ok(reply) => {
                replies.push(Reply::of(&reply));
                if reply.tool_calls.is_empty() {
                    return replies;
                }
                request = following(&request, &reply);
            }
            Err(error) => {
                replies.push(Reply::Error { error: error.to_string() });
                return replies;
            }
        }
    }
}

#[tokio::test]
async fn every_recorded_conversation_is_held_as_the_vendor_wants_it() {
    let recordings = recordings();
    for vendor in ["openai", "azure", "deepseek", "gemini", "qwen", "vllm", "ollama", "llama_cpp"] {
        for kind in ["chat", "schema", "tools", "stream", "stream_tools"] {
            let known = recordings.contains(&(vendor.to_owned(), kind.to_owned()));
            assert!(known || (vendor, kind) == ("azure", "stream_tools"), "{vendor}/{kind} is missing");
        }
    }
    for (name, kind) in recordings {
        let recording = Recording::read(&folder().join(&name).join(format!("{kind}.http")));
        // With the chunks of the vendor, and with chunks of 61 bytes that cut anywhere.
        for size in [usize::MAX, 61] {
            let vendor = Vendor::start(&name, &recording, size).await;
            let replies = converse(&vendor.model(), &recording).await;
            vendor.is_content(&format!("{name}/{kind}"));
            assert_eq!(replies.len(), recording.replies.len(), "{name}/{kind}: {replies:?}");
            for (reply, expected) in replies.iter().zip(&recording.replies) {
                assert!(reply.is(expected), "{name}/{kind}: {reply:?}, expected {expected:?}");
            }
        }
    }
}

#[test]
fn the_docs_have_the_settings_that_were_tried() {
    let docs = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/models.md")).unwrap();
    let mut vendors: Vec<String> = recordings().into_iter().map(|(vendor, _)| vendor).collect();
    vendors.dedup();
    // This vendor shows settings that do not work.
    for vendor in vendors.iter().filter(|vendor| *vendor != "openai_old_field") {
        let settings = std::fs::read_to_string(folder().join(vendor).join("settings.toml")).unwrap();
        assert!(docs.contains(&format!("```toml\n{settings}```")), "docs/models.md lacks the settings of {vendor}");
    }
}
