use super::*;

fn parse(value: &Value) -> Result<Decision, String> {
    parse_decision(&value.to_string())
}

#[test]
fn fences_marks_and_thoughts_around_the_object_are_taken_off() {
    let plain = r#"{"next_status":"typing","response":"好的"}"#;
    for content in [
        plain.to_owned(),
        format!("\u{feff}{plain}\n"),
        format!("```json\n{plain}\n```"),
        format!("```\n{plain}\n```  "),
        format!("```JSON {plain}```"),
        format!("<think>{{hm}}</think>\n{plain}"),
    ] {
        let decision = parse_decision(&content).unwrap();
        assert_eq!((decision.next_status, decision.response.as_deref()), (NextStatus::Typing, Some("好的")));
    }
    for content in ["", "好的！", "Sure: {}", "[]", "null", "```"] {
        assert!(parse_decision(content).unwrap_err().contains("one JSON object"), "{content}");
    }
    assert!(parse_decision("{\"next_status\":").unwrap_err().contains("was cut off"));
}

#[test]
fn what_is_not_allowed_is_named_with_what_is() {
    let action = |action: Value| json!({"next_status": "processing", "action": action});
    for (answer, part) in [
        (json!({"next_status": "acknowledged"}), "`next_status` cannot be `acknowledged`; allowed are"),
        (json!({"next_status": "cancelled"}), "`next_status` cannot be `cancelled`"),
        (json!({"next_status": 1}), "has to be a text, but is a number"),
        (json!({}), "`next_status` is missing"),
        (json!({"next_status": "typing"}), "`response` is missing"),
        (json!({"next_status": "typing", "response": "  "}), "`response` is missing"),
        (json!({"next_status": "transferred", "response": null}), "`response` is missing"),
        (json!({"next_status": "typing", "response": "…"}), "`response` is the placeholder `…`; write the text"),
        (json!({"next_status": "ready", "response": "string"}), "is the placeholder `string`"),
        (json!({"next_status": "typing", "response": ["a"]}), "`response` has to be a text or null, but is a list"),
        (action(json!("x")), "`action` has to be one object or null, but is a text"),
        (action(json!([])), "but is a list"),
        (action(json!({"type": "MAGIC", "target": "x"})), "`action.type` cannot be `MAGIC`; allowed are `SKILL`"),
        (action(json!({"type": "TOOL"})), "`action.target` is missing"),
        (action(json!({"type": "TOOL", "target": " "})), "`action.target` is missing"),
        (action(json!({"type": "TOOL", "target": "x", "params": []})), "`action.params` has to be an object"),
        (action(json!({"type": "SYSTEM", "target": "reboot"})), "`reboot` is not a system operation"),
        (action(json!({"type": "SYSTEM", "target": "handoff"})), "a handoff (`transferred`) needs one"),
    ] {
        let error = parse(&answer).unwrap_err();
        assert!(error.contains(part), "{answer}: {error}");
    }
    let both = parse(&json!({"next_status": "done", "response": 1})).unwrap_err();
    assert!(both.contains("`done`") && both.contains("`response`"), "{both}");
}

#[test]
fn what_has_one_meaning_is_put_right() {
    let handoff = json!({"type": "SYSTEM", "target": " handoff "});
    let without_action = parse(&json!({"next_status": "transferred", "response": "转人工"})).unwrap();
    assert_eq!(without_action.action.unwrap().target, "handoff");
    let other_status = parse(&json!({"next_status": "processing", "response": "转人工", "action": handoff})).unwrap();
    assert_eq!(other_status.next_status, NextStatus::Transferred);
    let ready = parse(&json!({"next_status": "ready", "response": "再见", "reasoning": 1})).unwrap();
    assert_eq!((ready.response, ready.reasoning), (None, None));
    let flow = json!({"type": "FLOW", "target": "analysis"});
    let flow = parse(&json!({"next_status": "typing", "response": "x", "action": flow})).unwrap();
    assert_eq!((flow.response, flow.action.unwrap().params), (None, Map::new()));
}

#[test]
fn phase_one_gives_a_plan_and_a_decision() {
    let decision = json!({"next_status": "ready", "action": null, "response": null});
    let (plan, _) = parse_plan_and_decision(
        &json!({"plan": {"name": "小智", "greeting": "", "timers": null, "tools": ["made up"]}, "decision": decision})
            .to_string(),
    )
    .unwrap();
    assert_eq!(plan, PlanDraft { name: Some("小智".into()), ..PlanDraft::default() });
    let copied = json!({"plan": {"name": "…", "greeting": "<greeting>", "sop": "1. 问候"}, "decision": decision});
    let (plan, _) = parse_plan_and_decision(&copied.to_string()).unwrap();
    assert_eq!(plan, PlanDraft { sop: Some("1. 问候".into()), ..PlanDraft::default() });
    for (answer, part) in [
        (json!({"next_status": "ready"}), "`plan` is missing"),
        (json!({"plan": {}}), "`decision` is missing"),
        (json!({"plan": {"sop": ["a"]}, "decision": decision}), "`plan.sop` has to be a text or null"),
        (json!({"plan": {"timers": "30m"}, "decision": decision}), "`plan.timers` has to be a list"),
        (json!({"plan": [], "decision": {}}), "`plan` has to be an object, but is a list; `next_status` is missing"),
    ] {
        let error = parse_plan_and_decision(&answer.to_string()).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn the_schemas_hold_for_what_is_accepted() {
    let schema = plan_and_decision_schema();
    assert!(!schema.strict);
    let validator = jsonschema::validator_for(&schema.schema).unwrap();
    let timers = json!([{"name": "a", "delay": 30, "action": {"type": "TOOL", "target": "x", "params": {"k": 1}}}]);
    let decision = json!({"next_status": "typing", "action": null, "response": "好"});
    let plan = json!({"name": "a", "tone": null, "greeting": null, "sop": "", "timers": timers, "constraints": ""});
    assert!(validator.is_valid(&json!({"plan": plan, "decision": decision})));
    assert!(jsonschema::validator_for(&decision_schema().schema).unwrap().is_valid(&decision));
}
