//! The benchmark agent with its tools and its model: every benchmark that runs turns uses it.

use async_trait::async_trait;
use definitions::agent::AgentRecord;
use engine::action::ActionResult;
use engine::action::tool::{ToolFunction, Tools};
use engine::model::offline::Offline;
use engine::model::{Model, ModelError, ModelReply, ModelRequest};
use serde_json::{Map, Value, json};
use std::time::Duration;
use types::timestamp::Timestamp;

/// Agent id.
pub(super) const AGENT: &str = "bench";

/// The users' messages, of different lengths. Message `n` is entry `n` modulo the length, so each run sends the same
/// sequence.
pub(super) const SAYINGS: [&str; 8] = [
    "你好",
    "请问你们周末营业吗？",
    "我想了解一下新款车型的价格和现车情况，另外贷款怎么办理？",
    "好的，谢谢",
    "What are your opening hours on Saturday?",
    "上次说的试驾可以改到周三下午吗？我的手机号没变。",
    "还有别的颜色吗",
    "麻烦帮我查一下订单，已经等了五天了，物流一直停在同一个城市没有更新。",
];

const SOP: &str = "一、先弄清用户要什么：查订单物流、预约试驾、询问营业时间或者找人工。\n\
    二、查订单：用户给出订单号后查询，把状态告诉用户；没有订单号时先请用户提供。\n\
    三、预约试驾：问清车型、日期和手机号，三项齐全后预约，并把预约号告诉用户。\n\
    四、营业时间：周一至周五 9:00–18:00，周六、周日 10:00–17:00，直接回答。\n\
    五、用户要求人工，或者情绪激动、投诉、谈及退款：先安抚一句，再转人工。";

/// Builds an agent whose rules call `actions` tools one after the other and then reply. With `http`, each tool is an
/// HTTP call to that address; otherwise it is a function in the worker.
pub(super) fn agent(actions: usize, http: Option<&str>) -> anyhow::Result<AgentRecord> {
    let name = |number: usize| format!("act{number}");
    let act = |number: usize| {
        json!({"next_status": "processing",
               "action": {"type": "TOOL", "target": name(number), "params": {"order_id": "A1001", "text": "{message}"}}})
    };
    let reply = json!({"next_status": "typing", "response": "收到：{message} 我们的营业时间是周一至周五 9:00–18:00。"});
    let then = |number: usize| if number < actions { act(number) } else { reply.clone() };
    let after = (0..actions).map(|done| json!({"when": {"result_of": name(done)}, "decide": then(done + 1)}));
    let rules: Vec<Value> = after.chain([json!({"when": {"always": true}, "decide": then(0)})]).collect();
    let tools = (0..actions).map(|number| {
        let params = json!({"type": "object", "required": ["order_id"],
            "properties": {"order_id": {"type": "string", "description": "订单号"}, "text": {"type": "string"}}});
        let mut tool = json!({"id": name(number), "description": "查询订单的物流状态", "params": params});
        if let Some(url) = http {
            tool["http"] = json!({"method": "POST", "url": format!("{url}/{}", name(number))});
        }
        tool
    });
    let document = json!({
        "id": AGENT, "name": "小智", "tone": "热情、专业、简洁", "greeting": "您好，我是小智，请问今天想了解什么？",
        "sop": SOP, "constraints": "每次回复不超过三句话。", "tools": tools.collect::<Vec<_>>(), "rules": rules,
    });
    Ok(AgentRecord::from_document(document, Timestamp::from_millis(0))?)
}

/// Builds a coordinator with the texts of [`agent`], whose only rule decides one `respond` with the same reply.
pub(super) fn coordinator() -> anyhow::Result<AgentRecord> {
    let reply = "收到：{message} 我们的营业时间是周一至周五 9:00–18:00。";
    let payload = json!({"action_type": "respond", "response": reply, "intent": "simple_query", "confidence": 1.0});
    let decisions = json!([{"decision_type": "respond", "confidence": 1.0, "payload": payload}]);
    let output = json!({"reasoning": "offline", "intent": "SIMPLE_QUERY", "decisions": decisions});
    let rules = json!([{"when": {"always": true}, "decide": {"output": output}}]);
    let mut document = agent(0, None)?.document;
    for (name, value) in [("mode", json!("coordinator")), ("rules", rules)] {
        document[name] = value;
    }
    Ok(AgentRecord::from_document(document, Timestamp::from_millis(0))?)
}

/// The result of every action.
pub(super) fn order() -> Value {
    json!({"order_id": "A1001", "status": "运输中", "city": "武汉", "days": 2, "items": [{"sku": "X-1", "count": 1}]})
}

/// Functions for the agent's tools; each returns [`order`] immediately.
pub(super) fn tools(actions: usize) -> Tools {
    (0..actions).fold(Tools::default(), |tools, number| tools.with(format!("act{number}"), AtOnce))
}

struct AtOnce;

#[async_trait]
impl ToolFunction for AtOnce {
    async fn call(&self, _params: &Map<String, Value>, _idempotency_key: &str) -> ActionResult {
        ActionResult::ok(order())
    }
}

/// The offline model with a fixed latency.
pub(super) struct Paced {
    pub(super) latency: Duration,
}

#[async_trait]
impl Model for Paced {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        Offline::new().complete(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::agent::coordinator::Mode;

    #[test]
    fn its_rules_run_every_action_once_and_then_reply() {
        for actions in [0, 1, 3] {
            let agent = agent(actions, None).unwrap();
            assert_eq!(agent.config.rules.len(), actions + 1);
            assert_eq!(agent.config.tools.len(), actions);
        }
        let coordinator = coordinator().unwrap();
        assert!(coordinator.config.mode == Mode::Coordinator && coordinator.config.rules.len() == 1);
        let with_http = agent(1, Some("http://127.0.0.1:1")).unwrap();
        assert!(with_http.config.tools[0].http.as_ref().is_some_and(|call| call.url.ends_with("/act0")));
    }
}
