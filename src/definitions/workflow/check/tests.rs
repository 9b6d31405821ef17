use crate::agent::AgentRecord;
use crate::workflow::check::*;
use crate::workflow::definition::WorkflowRecord;
use serde_json::{Value, json};
use types::timestamp::Timestamp;

fn table<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// A stage that runs the task agent `agent`.
fn stage(id: &str, input: &str) -> Value {
    json!({"id": id, "runnable": "agent", "input": input})
}

fn inline(id: &str, input: &str, workflow: Value) -> Value {
    table([("id", id.into()), ("input", input.into()), ("runnable", workflow)])
}

fn pipeline(stages: Value) -> Value {
    table([("id", "w".into()), ("stages", stages)])
}

fn looped(inherit: Value, stages: Value) -> Value {
    table([("type", "loop".into()), ("id", "l".into()), ("inherit_keys", inherit), ("stages", stages)])
}

fn parallel(branches: Value) -> Value {
    table([("type", "parallel".into()), ("id", "p".into()), ("branches", branches)])
}

fn known(others: &[Value]) -> RunnableRegistry {
    let agent = |document: Value| AgentRecord::from_document(document, Timestamp::from_millis(0)).unwrap();
    let agents = [agent(json!({"id": "agent", "system_prompt": "x"})), agent(json!({"id": "sales", "sop": "x"}))];
    let read = |document: &Value| WorkflowRecord::from_document(document.clone(), Timestamp::from_millis(0)).unwrap();
    RunnableRegistry::new(["flow".to_owned()])
        .with_agents(&agents)
        .with_workflows(others.iter().map(|document| read(document).workflow))
}

/// The findings of a document, as text.
fn found(document: &Value, others: &[Value]) -> String {
    let workflow = Workflow::from_document(document).unwrap_or_else(|error| panic!("{error}"));
    check(&workflow, &known(others)).to_string()
}

#[test]
fn a_secret_for_another_host_is_found_by_line_and_column() {
    let mut settings = base::config::Settings::default();
    settings.secrets.allow = vec!["KEY@api.example.com".into()];
    let known = known(&[]).with_names(&crate::agent::validate::KnownNames::new(&settings, Vec::new()));
    let text = |url: &str| {
        format!(
            "type: graph\nid: g\nname: g\nedges: []\nnodes:\n  - node_id: call\n    name: call\n    type: HTTP\n    config:\n      \
             method: POST\n      url: {url}\n      body: {{a: [x, 'k ${{KEY}}']}}\n"
        )
    };
    let checked = |url: &str| known.check(crate::workflow::read::text("g.yaml".as_ref(), &text(url)).unwrap());
    assert!(checked("https://api.example.com/x").is_ok());
    assert_eq!(
        checked("https://evil.example/x").unwrap_err().to_string(),
        "line 12, column 21: nodes[0].config.body.a[1]: the secret `${KEY}` may not be sent to `evil.example`: the setting \
         `secrets.allow` binds it to `api.example.com`; call a host that it is for, or add `KEY@evil.example` to the setting \
         (TURNWHEEL_SECRETS__ALLOW)"
    );
}

#[test]
fn every_place_sees_what_the_rules_say() {
    let research = looped(
        json!(["plan"]),
        json!([
            inline(
                "both",
                "{plan}{loop.iteration}{loop.last.both}{loop.last.x}",
                json!({
                    "type": "parallel", "id": "p", "merge_template": "{query}{plan}{x}{y}{loop.last.y}",
                    "branches": [
                        stage("x", "{query}{plan}{loop.iteration}{loop.last.x}"),
                        inline("y", "{plan}", looped(json!(["plan"]), json!([stage("z", "{plan}{loop.last.z}")]))),
                    ],
                })
            ),
            stage("after", "{both}{x}{y}{plan}"),
        ]),
    );
    let choice = json!({
        "type": "conditional", "id": "c",
        "routes": [{"condition": "{research} contains 'x'", "stage": stage("one", "{plan}{query}")}],
        "default": stage("other", "{research}"),
    });
    let document = pipeline(json!([
        stage("plan", "{query} {{never}} {\"a\": {query}}"),
        inline("research", "{plan}", research),
        {"id": "three", "runnable": "three", "input": "{research}"},
        inline("choice", "{c}{d}{three}", choice),
        {"id": "flow", "runnable": "flow", "input": "{choice}", "condition": "not {choice}"},
    ]));
    let three = json!({"type": "parallel", "id": "three", "branches": [stage("c", "{query}"), stage("d", "{query}")]});
    assert_eq!(found(&document, &[three]), "");
}

#[test]
fn the_models_of_a_stage_are_known_and_asked_by_a_task_agent_or_a_flow() {
    let found = |document: Value| {
        let record = WorkflowRecord::from_document(document, Timestamp::from_millis(0)).unwrap();
        let report = check(&record.workflow, &known(&[]).with_models(["fast".to_owned()]));
        let all = report.errors.iter().map(|found| format!("error: {found}"));
        let all = all.chain(report.warnings.iter().map(|found| format!("warning: {found}")));
        all.collect::<Vec<_>>().join("\n")
    };
    let asking = |runnable: Value, model: Value| {
        let stage = table([("id", "a".into()), ("input", "".into()), ("runnable", runnable), ("model", model)]);
        pipeline(json!([stage]))
    };
    for good in [json!("fast"), json!(["fast", "default"]), json!(["offline"])] {
        assert_eq!(found(asking("agent".into(), good)), "");
    }
    assert_eq!(
        found(asking("agent".into(), json!(["fast", "fsat"]))),
        "error: stages[0].model[1]: there is no model `fsat`; known are `default`, `offline`, `fast`; did you mean `fast`? Add [models.fsat] to the settings, or name another"
    );
    let nested = pipeline(json!([inline("b", "", asking("agent".into(), json!("fsat")))]));
    assert!(found(nested).starts_with("error: stages[0].runnable.stages[0].model: there is no model `fsat`"));
    assert_eq!(found(asking(json!("flow"), json!("fast"))), "", "a flow asks it, too");
    let told = found(asking(parallel(json!([stage("b", "{query}")])), json!("fast")));
    assert!(told.starts_with("warning: stages[0].model: has no effect here; only a task agent"), "{told}");
}

#[test]
fn a_name_without_a_value_is_an_error_with_the_remedy() {
    let sequence = |first: &str, second: &str| pipeline(json!([stage("first", first), stage("second", second)]));
    let within = |workflow: Value| pipeline(json!([stage("plan", ""), inline("s", "", workflow)]));
    for (document, message) in [
        (
            sequence("", "{frist}"),
            "error: stages[1].input: there is no `{frist}` here; there is `query`, `first`; did you mean `first`?",
        ),
        (
            sequence("", "a{3}"),
            "error: stages[1].input: there is no `{3}` here; there is `query`, `first`; write `{{3}}` where the text `{3}` is meant",
        ),
        (
            sequence("{second}", ""),
            "error: stages[0].input: `{second}` is the output of a later stage, `stages[1]`; put that stage before this one",
        ),
        (
            sequence("", "{ first } {\"a\": 1} { other } ｛query｝"),
            "warning: stages[1].input: `{ first }` is plain text, not a variable; write `{first}`\nwarning: stages[1].input: `｛query｝` is plain text, not a variable; write `{query}`",
        ),
        (sequence("{first}", ""), "error: stages[0].input: `{first}` is the output of this stage itself"),
        (
            sequence("{query.x}", ""),
            "error: stages[0].input: `{query.x}` looks into `query`, which is a text; write `{query}`",
        ),
        (
            sequence("", "{first.x}"),
            "error: stages[1].input: `{first.x}` looks into `first`, which is a text; write `{first}`",
        ),
        (
            sequence("{loop}", ""),
            "error: stages[0].input: there is no `{loop}`; write `{loop.iteration}` or `{loop.last.stage}`",
        ),
        (
            sequence("{loop.last.first}", ""),
            "error: stages[0].input: `{loop.last.first}` has no value outside of a loop; a pipeline within a loop does not see the loop's values; the stage that runs it can pass them in its `input`",
        ),
        (
            sequence("{loop.iteration}", ""),
            "warning: stages[0].input: `{loop.iteration}` is always 0 outside of a loop; remove it, or put the stage into a loop",
        ),
        (
            within(looped(json!([]), json!([stage("a", "{plan}")]))),
            "error: stages[1].runnable.stages[0].input: the loop `l` does not see `plan` of the workflow around it; add it there: `inherit_keys: [plan]`",
        ),
        (
            within(looped(json!([]), json!([inline("a", "", parallel(json!([stage("b", "{plan}")])))]))),
            "error: stages[1].runnable.stages[0].runnable.branches[0].input: the loop `l` does not see `plan` of the workflow around it; add it there: `inherit_keys: [plan]`",
        ),
        (
            within(looped(json!(["plane"]), json!([stage("a", "{plane}")]))),
            "error: stages[1].runnable.inherit_keys[0]: the enclosing workflow has no `plane` at this point; it has `plan`; did you mean `plan`?",
        ),
        (
            within(looped(json!(["query"]), json!([stage("a", "")]))),
            "error: stages[1].runnable.inherit_keys[0]: every workflow has a `query` of its own; the stage that runs it can pass it in its `input`",
        ),
        (
            within(looped(json!(["plan"]), json!([stage("plan", "")]))),
            "error: stages[1].runnable.stages[0].id: the stage `plan` has the same name as one of `inherit_keys`; give one of them another id: once a parallel has ended, its branches' outputs go by their ids",
        ),
        (
            looped(json!([]), json!([stage("a", "{b}"), stage("b", "{loop.last.c}")])),
            "error: stages[0].input: `{b}` is the output of a later stage, `stages[1]`; `{loop.last.b}` is its output in the previous iteration\nerror: stages[1].input: the loop has no stage `c`; it has `a`, `b`; did you mean `a`?",
        ),
        (
            looped(json!([]), json!([stage("a", "{a}")])),
            "error: stages[0].input: `{a}` is the output of this stage itself; `{loop.last.a}` is its output in the previous iteration",
        ),
        (
            parallel(json!([stage("a", "{b}"), stage("b", "")])),
            "error: branches[0].input: `{b}` is the output of another branch, and branches run concurrently; use it in the `merge_template`, or in a stage after the parallel",
        ),
        (
            looped(json!([]), json!([inline("s", "", parallel(json!([stage("a", "{b}"), stage("b", "")])))])),
            "error: stages[0].runnable.branches[0].input: `{b}` is the output of another branch, and branches run concurrently; `{loop.last.b}` is its output in the previous iteration",
        ),
        (
            pipeline(json!([stage("a", ""), inline("s", "", parallel(json!([stage("a", ""), stage("b", "")])))])),
            "error: stages[1].runnable: the branch `a` has the same name as an output of `stages[0]`; give one of them another id: once a parallel has ended, its branches' outputs go by their ids",
        ),
        (
            json!({"type": "conditional", "id": "w", "routes": [{"condition": "{b}", "stage": stage("a", "")}], "default": stage("b", "")}),
            "error: routes[0].condition: `{b}` is the output of a route, and only one route is taken",
        ),
        (
            json!({"type": "loop", "id": "w", "condition": "{b} contains 'x'", "stages": [stage("a", "")]}),
            "error: condition: there is no `{b}` here; there is `query`, `a`; did you mean `a`?",
        ),
    ] {
        assert_eq!(found(&document, &[]), message, "{document}");
    }
}

#[test]
fn a_reference_leads_to_what_can_run_and_not_back() {
    let runs = |id: &str, runnable: &str| json!({"id": id, "stages": [{"id": "s", "runnable": runnable, "input": ""}]});
    for (document, others, message) in [
        (
            runs("w", "agnet"),
            vec![],
            "error: stages[0].runnable: Runnable not found: agnet; did you mean `agent`? apply a task agent, add a workflow file with that id, or register a flow",
        ),
        (
            runs("w", "sales"),
            vec![],
            "error: stages[0].runnable: Runnable not found: sales; `sales` is an agent that takes chats; a stage needs one with a `system_prompt`",
        ),
        (runs("w", "w"), vec![], "error: stages[0].runnable: a workflow cannot run itself; a loop repeats stages"),
        (
            runs("w", "a"),
            vec![runs("a", "b"), runs("b", "w"), runs("w", "agent")],
            "error: stages[0].runnable: `w` runs itself by way of `a`, then `b`, then `w`; remove one of these references",
        ),
        (runs("w", "a"), vec![runs("a", "b"), runs("b", "a")], ""),
        (runs("w", "a"), vec![runs("a", "agent"), runs("w", "a")], ""),
        (
            runs("flow", "agent"),
            vec![],
            "error: id: there is a flow with the id `flow` already; task agents, workflows and flows share one set of ids: give this one another id",
        ),
        (
            runs("agent", "flow"),
            vec![],
            "error: id: there is a task agent with the id `agent` already; task agents, workflows and flows share one set of ids: give this one another id",
        ),
        (runs("sales", "flow"), vec![], ""),
    ] {
        assert_eq!(found(&document, &others), message, "{document}");
    }
    let built = WorkflowRecord::from_document(runs("w", "gone"), Timestamp::from_millis(0)).unwrap();
    assert!(known(&[]).check_built(built).is_err());
    let document = pipeline(json!([stage("a", "{never}")]));
    let built = WorkflowRecord::from_document(document, Timestamp::from_millis(0)).unwrap();
    assert!(known(&[]).check(built.clone()).is_err() && known(&[]).check_built(built).is_ok());
}
