//! `turnwheel sessions prompts`: the messages that the model calls of a turn have sent.

use crate::client::{CONCURRENT_REQUESTS, GatewayClient};
use crate::failure::Failure;
use crate::table::{pretty, printable};
use clap::Args;
use commands::prompts::{StepPrompt, model_calls};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::json;

pub const HELP: &str = "\
Examples:
  turnwheel sessions prompts s1 m-1                    all model calls of the turn
  turnwheel sessions prompts s1 m-1 --step 0/decide    of one step
  turnwheel sessions prompts s1 m-1 --json

`turnwheel sessions show s1 --steps` lists the turns and their steps. Model calls keep their prompts while the setting \
journal.prompts of the workers is `full`, as it is in `turnwheel dev`. Secrets are masked.";

#[derive(Debug, Args)]
pub struct ShowPrompts {
    /// Id of the session
    #[arg(value_parser = crate::id)]
    id: String,
    /// Id of the turn
    #[arg(value_parser = crate::id)]
    turn: String,
    /// Key of one step
    #[arg(long, value_name = "KEY")]
    step: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ShowPrompts {
    pub async fn text(&self, client: &GatewayClient) -> anyhow::Result<String> {
        let prompts = match &self.step {
            Some(key) => vec![client.prompt(&self.id, &self.turn, key).await?],
            None => self.of_turn(client).await?,
        };
        if self.json {
            return pretty(&json!({ "prompts": prompts }));
        }
        Ok(prompts.iter().map(describe).collect::<Vec<_>>().join("\n\n"))
    }

    async fn of_turn(&self, client: &GatewayClient) -> anyhow::Result<Vec<StepPrompt>> {
        let turn = client.turn(&self.id, &self.turn).await?;
        let asked = stream::iter(model_calls(&turn)).map(|key| client.prompt_if_kept(&self.id, &self.turn, key));
        let found: Vec<Option<StepPrompt>> = asked.buffered(CONCURRENT_REQUESTS).try_collect().await?;
        let found: Vec<StepPrompt> = found.into_iter().flatten().collect();
        if found.is_empty() {
            let message = format!("no prompt of turn `{}` of session `{}` is stored", self.turn, self.id);
            let hint = "set `journal.prompts = \"full\"` for the workers: later model calls keep their prompts";
            return Err(Failure::new(message, hint).into());
        }
        Ok(found)
    }
}

fn describe(prompt: &StepPrompt) -> String {
    let cut = if prompt.prompt.cut { ", cut" } else { "" };
    let mut lines =
        vec![format!("{}: {} messages, {} bytes{cut}", prompt.key, prompt.prompt.messages.len(), prompt.prompt.bytes)];
    for message in &prompt.prompt.messages {
        lines.push(format!("[{}]", message.role));
        lines.extend(message.content.lines().map(str::to_owned));
        lines.extend(message.images.iter().map(|image| format!("image {image}")));
        lines.extend(message.tool_calls.iter().map(|call| format!("call {}", call["function"])));
    }
    lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_shown_message_by_message() {
        let prompt = json!({
            "session_id": "s1", "turn_id": "m-1", "key": "0/decide", "bytes": 12, "cut": true,
            "messages": [
                {"role": "system", "content": "系统\n第二行\u{1b}"},
                {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "eta", "arguments": "{}"}}]},
            ],
        });
        let text = describe(&serde_json::from_value(prompt).unwrap());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..4], ["0/decide: 2 messages, 12 bytes, cut", "[system]", "系统", "第二行"]);
        assert_eq!(lines[4], "[assistant]");
        assert!(lines[5].starts_with("call {") && lines[5].contains("eta"), "{text}");
    }
}
