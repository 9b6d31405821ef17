//! The world and the report of one validation.

use crate::path::Path;
use crate::report::{Group, Report};
use crate::world::World;
use serde_json::{Map, Value};

/// One validation.
pub(super) struct Check<'w> {
    pub(super) world: &'w dyn World,
    pub(super) report: Report,
    /// True for a workflow file, whose nodes may have more types.
    pub(super) is_file: bool,
}

impl<'w> Check<'w> {
    pub(super) fn new(world: &'w dyn World) -> Self {
        Self { world, report: Report::default(), is_file: false }
    }

    /// Adds an error of the group of rules.
    pub(super) fn rule(&mut self, path: &Path<'_>, text: impl FnOnce() -> String) {
        self.report.error(Group::Rule, path, text);
    }
}

/// The object in a field; `None` if the field is absent or of another kind, which `shape` reports.
pub(super) fn object<'v>(fields: &'v Map<String, Value>, name: &str) -> Option<&'v Map<String, Value>> {
    fields.get(name)?.as_object()
}

/// The text in a field.
pub(super) fn text<'v>(fields: &'v Map<String, Value>, name: &str) -> Option<&'v str> {
    fields.get(name)?.as_str()
}

/// The items of a list in a field; empty without it.
pub(super) fn list<'v>(fields: &'v Map<String, Value>, name: &str) -> &'v [Value] {
    fields.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
