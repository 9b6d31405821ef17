use super::*;
use serde_json::json;

fn agent() -> Value {
    json!({
        "id": "sales", "name": "小智", "greeting": "您好", "updated_at": "2026-01-01T00:00:00Z",
        "sop": "一、先问清楚。\n二、查询订单。\n三、道别。\n",
        "skills": [
            {"id": "query_order", "http": {"method": "GET", "url": "https://api.example.com/orders/{order_id}",
             "headers": {"Authorization": "Bearer ${SHOP_KEY}"}}},
            {"id": "book", "http": {"method": "POST", "url": "https://api.example.com/bookings"}},
        ],
        "flows": ["a", "b"],
        "rules": [{"when": {"always": true}, "decide": {"next_status": "ready"}}],
    })
}

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut draft = agent();
    change(&mut draft);
    draft
}

fn told(difference: &Difference) -> Vec<String> {
    let op = |change: &Change| match change.op {
        Op::Add => '+',
        Op::Remove => '-',
        Op::Replace => '~',
    };
    difference.changes.iter().map(|change| format!("{} {} {:?}", op(change), change.path, change.concern)).collect()
}

#[test]
fn hosts_come_first_then_secrets_actions_settings_and_texts() {
    let draft = with(|draft| {
        draft["sop"] = "一、先问清楚。\n二、查询订单和物流。\n三、道别。\n".into();
        draft["greeting"] = "您好！".into();
        draft["flows"] = json!(["b", "c"]);
        draft["skills"][1]["http"]["headers"] = json!({"X-Key": "${SHOP_KEY} ${OTHER_KEY}"});
        let new = json!({"id": "track", "http": {"url": "https://Track.example.org/{id}"}});
        draft["skills"].as_array_mut().unwrap().insert(0, new);
    });
    let difference = Difference::between(&agent(), &draft);
    assert_eq!(
        told(&difference),
        [
            "+ skills[track] Host",
            "+ skills[book].http.headers Secret",
            "- flows[0] Action",
            "+ flows[1] Action",
            "~ greeting Setting",
            "~ sop Text",
        ],
        "{difference}"
    );
    assert_eq!(difference.new_hosts, ["track.example.org"]);
    assert_eq!(difference.new_secrets, ["OTHER_KEY@api.example.com"], "the other one goes to the host already");
    assert_eq!(Difference::between(&agent(), &draft), difference, "the order is stable");
}

#[test]
fn a_known_secret_to_another_host_is_a_new_secret() {
    let (mut base, mut draft) = (agent(), agent());
    base["skills"][1]["http"]["url"] = "https://other.example.com/".into();
    draft["skills"][1]["http"]["url"] = "https://other.example.com/".into();
    draft["skills"][0]["http"]["url"] = "https://other.example.com/orders".into();
    let difference = Difference::between(&base, &draft);
    assert_eq!(told(&difference), ["~ skills[query_order].http.url Secret"]);
    assert_eq!(difference.new_secrets, ["SHOP_KEY@other.example.com"]);
    assert!(difference.to_string().starts_with("sends the secret SHOP_KEY to other.example.com"), "{difference}");
}

#[test]
fn an_element_is_compared_by_its_id_and_a_new_order_is_one_change() {
    let draft = with(|draft| draft["skills"].as_array_mut().unwrap().reverse());
    let difference = Difference::between(&agent(), &draft);
    assert_eq!(told(&difference), ["~ skills[] Action"]);
    assert_eq!(difference.changes[0].after, Some(json!(["book", "query_order"])));
    let edges = |list: Value| json!({"id": "w", "edges": list});
    let (one, two) = (json!({"source": "a", "target": "b"}), json!({"source": "b", "target": "c"}));
    let difference = Difference::between(&edges(json!([one])), &edges(json!([two, one])));
    assert_eq!(told(&difference), ["+ edges[b->c] Action"]);
}

#[test]
fn elements_without_ids_are_compared_by_the_shortest_edit() {
    let rule = |response: &str| json!({"when": {"always": true}, "decide": {"response": response}});
    let rules = |list: &[&str]| json!({"id": "a", "rules": list.iter().map(|text| rule(text)).collect::<Vec<_>>()});
    let difference = Difference::between(&rules(&["a", "b", "c"]), &rules(&["x", "a", "B", "c"]));
    assert_eq!(told(&difference), ["+ rules[0] Setting", "~ rules[2].decide.response Setting"]);
}

#[test]
fn a_long_text_is_shown_by_its_changed_lines_in_either_language() {
    let english = "1. Ask.\n2. Look the order up.\n3. Say goodbye.\n4. End.\n";
    for (old, new, gone, added) in [
        (english, english.replace("order up", "parcel up"), "- 2. Look the order up.", "+ 2. Look the parcel up."),
        (
            "一、问。\n二、查订单。\n三、道别。\n四、结束。\n",
            "一、问。\n二、查物流。\n三、道别。\n四、结束。\n".to_owned(),
            "- 二、查订单。",
            "+ 二、查物流。",
        ),
    ] {
        let difference = Difference::between(&json!({"sop": old}), &json!({"sop": new}));
        let shown = difference.to_string();
        assert!(shown.starts_with("~ sop:\n") && shown.contains(gone) && shown.contains(added), "{shown}");
        assert!(!shown.contains("4. End.") && !shown.contains("四、结束。"), "{shown}");
        assert!(difference.text.contains(&gone.replacen("- ", "-  ", 1)), "{}", difference.text);
    }
}

#[test]
fn equal_documents_have_no_difference_whatever_the_store_adds() {
    let later = with(|draft| draft["updated_at"] = "2027-01-01T00:00:00Z".into());
    let difference = Difference::between(&agent(), &later);
    assert!(difference.is_empty(), "{difference}");
    assert_eq!((difference.to_string().as_str(), difference.base_hash), ("no differences\n", difference.hash));
    assert!(Difference::between(&json!({"a": 1}), &json!({"a": 1.0})).is_empty());
}

#[test]
fn the_json_form_has_the_fields_of_the_contract() {
    let difference = Difference::between(&json!({"id": "a", "x": 1}), &json!({"id": "a", "y.z": [1]}));
    let written = serde_json::to_value(&difference).unwrap();
    assert_eq!(
        written["changes"],
        json!([
            {"op": "remove", "path": "x", "concern": "setting", "before": 1},
            {"op": "add", "path": "[\"y.z\"]", "concern": "setting", "after": [1]},
        ])
    );
    assert!(written["text"].as_str().unwrap().contains("-x: 1\n"), "{written}");
}
