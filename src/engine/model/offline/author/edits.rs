//! Changes of an existing document: a text replaces another one, or a field gets a new value. If the rules do not
//! recognise a change, the author asks for one of the known forms.

use super::words::{REPLACE, ZH_REPLACE, group, key_value, literal};
use serde_json::{Map, Value, json};

/// Fields of documents whose values are not texts for people. A replacement does not change them.
const NAMES: [&str; 14] = [
    "id",
    "node_id",
    "type",
    "source",
    "target",
    "runnable",
    "method",
    "url",
    "headers",
    "mode",
    "model",
    "builtin",
    "connection",
    "next_status",
];

/// Messages that want no change, for a copy.
const UNCHANGED: [&str; 8] = ["原样", "原样复制", "不变", "不改", "as is", "as it is", "unchanged", "no change"];

/// Fields with the words that name them: of an agent, and of a workflow.
const AGENT_FIELDS: [(&str, &[&str]); 5] = [
    ("name", &["名称", "名字", "name"]),
    ("tone", &["语气", "tone"]),
    ("greeting", &["问候语", "问候", "greeting"]),
    ("constraints", &["限制", "规则", "约束", "constraints", "limits"]),
    ("sop", &["流程", "步骤", "sop", "procedure"]),
];
const WORKFLOW_FIELDS: [(&str, &[&str]); 2] =
    [("name", &["名称", "名字", "name"]), ("description", &["说明", "描述", "description"])];

/// The changes in a message.
#[derive(Debug)]
pub(super) struct Edits(Vec<Edit>);

#[derive(Debug)]
enum Edit {
    Replace { old: String, new: String },
    Set { field: &'static str, value: String },
}

/// Why a message is not a change of the document.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unclear {
    /// The message has no form that the rules know.
    Form,
    /// The document does not contain the text to replace.
    NotThere(String),
}

impl Unclear {
    /// The question that asks for a known form, in Chinese and English.
    pub(super) fn question(&self, is_agent: bool) -> [String; 2] {
        let fields = if is_agent { ["问候语", "greeting"] } else { ["名称", "name"] };
        match self {
            Self::Form => [
                format!(
                    "要改什么？我只认得两种写法：“把 A 改成 B”，或“{}：新的文字”。要原样保留请写“原样”。",
                    fields[0]
                ),
                format!(
                    "What is to change? I know two forms: \"replace A with B\", or \"{}: the new text\". To keep it as it is, write \"as is\".",
                    fields[1]
                ),
            ],
            Self::NotThere(text) => [
                format!("文档里没有“{text}”。请照抄文档中的原文，写成“把 A 改成 B”。"),
                format!("The document does not have \"{text}\". Please copy its own words: \"replace A with B\"."),
            ],
        }
    }
}

impl Edits {
    /// Parses the changes in a message, one for each line, and applies them to the document to check them.
    pub(super) fn read(message: &str, document: &Value) -> Result<Self, Unclear> {
        let is_agent = document.get("nodes").is_none() && document.get("stages").is_none();
        let fields: &[(&str, &[&str])] = if is_agent { &AGENT_FIELDS } else { &WORKFLOW_FIELDS };
        let mut edits = Vec::new();
        for line in message.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if UNCHANGED.contains(&line.to_lowercase().trim_end_matches(['。', '.', '!', '！'])) {
                continue;
            }
            edits.push(edit(line, fields).ok_or(Unclear::Form)?);
        }
        if message.trim().is_empty() {
            return Err(Unclear::Form);
        }
        let edits = Self(edits);
        edits.apply(document).map(|_| edits)
    }

    /// The document with the changes.
    pub(super) fn apply(&self, document: &Value) -> Result<Value, Unclear> {
        let mut changed = document.clone();
        for edit in &self.0 {
            match edit {
                Edit::Set { field, value } => changed[*field] = json!(value),
                Edit::Replace { old, new } => {
                    if replace(&mut changed, old, new) == 0 {
                        return Err(Unclear::NotThere(old.clone()));
                    }
                }
            }
        }
        Ok(changed)
    }
}

/// Returns the texts that a message replaces, for the slots of a new artefact.
pub(super) fn replacement(message: &str) -> Option<(&str, &str)> {
    [&ZH_REPLACE, &REPLACE]
        .into_iter()
        .find_map(|pattern| Some((group(pattern, "old", message)?, group(pattern, "new", message)?)))
}

fn edit(line: &str, fields: &[(&'static str, &[&str])]) -> Option<Edit> {
    if let Some((old, new)) = replacement(line) {
        return Some(Edit::Replace { old: old.to_owned(), new: literal(new) });
    }
    let (key, value) = key_value(line)?;
    let key = key.to_lowercase();
    let (field, _) = fields.iter().find(|(field, words)| *field == key || words.contains(&key.as_str()))?;
    Some(Edit::Set { field, value: literal(value) })
}

/// Replaces a text in all texts for people, and counts the replacements.
fn replace(value: &mut Value, old: &str, new: &str) -> usize {
    match value {
        Value::String(text) if text.contains(old) => {
            *text = text.replace(old, new);
            1
        }
        Value::Array(items) => items.iter_mut().map(|item| replace(item, old, new)).sum(),
        Value::Object(fields) => replace_in(fields, old, new),
        _ => 0,
    }
}

fn replace_in(fields: &mut Map<String, Value>, old: &str, new: &str) -> usize {
    let texts = fields.iter_mut().filter(|(name, _)| !NAMES.contains(&name.as_str()));
    texts.map(|(_, field)| replace(field, old, new)).sum()
}
