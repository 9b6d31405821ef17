//! Schemas of bodies and parameters, made from their types. All of them are components of the document.

use super::event_frames::{EventGap, EventsOpened, LocatedEvent};
use engine::rehearsal::trial::{TrialBegin, TrialEnd, TrialStep};
use engine::workflow::orchestration::event::RunEvent;
use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value};
use types::authoring;
use types::event::{HandoffEvent, Reply, StatusEvent, StepEvent, TurnEvent};
use types::job::JobBody;
use types::run::RunRecord;
use types::session::Session;

/// Creates the generator of all schemas of a document. It has the schemas to which no endpoint refers: the payloads of
/// events, and the parts of larger types.
pub(super) fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut schemas = settings.with_transform(plain).with_transform(without_default).into_generator();
    schemas.subschema_for::<(Reply, StatusEvent, StepEvent, RunEvent, TurnEvent, HandoffEvent, authoring::Event)>();
    schemas.subschema_for::<(EventsOpened, LocatedEvent<'_>, EventGap)>();
    schemas.subschema_for::<(TrialBegin, TrialStep, TrialEnd)>();
    schemas.subschema_for::<(JobBody, RunRecord, Session)>();
    schemas
}

/// Rewrites a schema in the form that generators of client code know: the integer formats of OpenAPI, and one `enum`
/// in place of a list of constants.
pub(super) fn plain(schema: &mut Schema) {
    match schema.get("format").and_then(Value::as_str) {
        Some("uint64") => drop(schema.insert("format".into(), "int64".into())),
        Some("uint32") => drop(schema.insert("format".into(), "int32".into())),
        Some("uint") => drop(schema.remove("format")),
        _ => {}
    }
    let constants = schema.get("oneOf").and_then(Value::as_array);
    let constants = constants.and_then(|forms| forms.iter().map(|form| form.get("const").cloned()).collect());
    if let Some(constants) = constants {
        schema.remove("oneOf");
        schema.insert("type".into(), "string".into());
        schema.insert("enum".into(), Value::Array(constants));
    }
    transform_subschemas(&mut plain, schema);
}

/// Removes the values that Rust assumes for absent fields. Most of them only stand for "absent".
fn without_default(schema: &mut Schema) {
    schema.remove("default");
    transform_subschemas(&mut without_default, schema);
}

/// Removes the alternative `null`, which a query cannot have. It is always the last one.
pub(super) fn without_null(schema: &mut Map<String, Value>) {
    let first = |forms: &Value| forms.get(0).cloned();
    if let Some(kind) = schema.get("type").and_then(first) {
        schema.insert("type".into(), kind);
    }
    if let Some(Value::Object(form)) = schema.remove("anyOf").as_ref().and_then(first) {
        schema.extend(form);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;

    /// A type of body.
    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only a schema")]
    struct Sample {
        kind: Option<Choice>,
        count: Option<u64>,
        #[serde(default)]
        size: usize,
    }

    /// One of two.
    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    #[allow(dead_code, reason = "only a schema")]
    enum Choice {
        /// The first.
        One,
        /// The second.
        Two,
    }

    #[test]
    fn components_have_the_form_that_generators_of_clients_know() {
        let mut schemas = generator();
        schemas.subschema_for::<Sample>();
        let components = schemas.take_definitions(true);
        assert_eq!(
            components["Choice"],
            json!({"description": "One of two.", "type": "string", "enum": ["one", "two"]})
        );
        let fields = &components["Sample"]["properties"];
        assert_eq!(fields["count"], json!({"type": ["integer", "null"], "format": "int64", "minimum": 0}));
        assert_eq!(fields["size"], json!({"type": "integer", "minimum": 0}));
        assert_eq!(fields["kind"], json!({"anyOf": [{"$ref": "#/components/schemas/Choice"}, {"type": "null"}]}));
    }

    #[test]
    fn the_fields_of_a_query_cannot_be_null() {
        let mut query = Sample::json_schema(&mut generator());
        plain(&mut query);
        let field = |name: &str| {
            let mut field = query.get("properties").unwrap()[name].as_object().unwrap().clone();
            without_null(&mut field);
            Value::Object(field)
        };
        assert_eq!(field("kind"), json!({"$ref": "#/components/schemas/Choice"}));
        assert_eq!(field("count"), json!({"type": "integer", "format": "int64", "minimum": 0}));
        assert_eq!(field("size"), json!({"type": "integer", "default": 0, "minimum": 0}));
    }
}
