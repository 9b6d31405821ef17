//! Line and column of each value in a file's text, for error messages.

use serde::Serialize;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess};
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::fmt;

/// A position in a text. Both numbers start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The column in characters.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Values of texts with deeper nesting have no place: each level uses stack space, and people do not write such texts.
const MAX_DEPTH: usize = 24;

/// The places of all values in a text. Works for YAML and JSON, because JSON is YAML.
pub struct Positions(Option<PositionNode>);

impl Positions {
    /// Parses the text. A text with syntax errors yields no places.
    pub fn read(text: &str) -> Self {
        let budget = serde_saphyr::budget! { max_depth: MAX_DEPTH };
        let options = serde_saphyr::options! { with_snippet: false, budget: budget };
        Self(serde_saphyr::from_str_with_options(text, options).ok())
    }

    /// The place of the value at a path such as `skills[0].http.url`. For a missing value: the place of the innermost
    /// existing table or list on the path.
    pub(crate) fn position_of(&self, path: &str) -> Option<Position> {
        let mut node = self.0.as_ref()?;
        let mut rest = path;
        while let Some((below, left)) = node.step(rest) {
            node = below;
            rest = left;
        }
        node.place
    }
}

/// A value and the values below it.
struct PositionNode {
    place: Option<Position>,
    below: Children,
}

enum Children {
    Nothing,
    List(Vec<PositionNode>),
    Table(BTreeMap<String, PositionNode>),
}

impl PositionNode {
    /// The child that the beginning of `path` names, and the rest of the path.
    fn step<'p>(&self, path: &'p str) -> Option<(&Self, &'p str)> {
        match &self.below {
            Children::Nothing => None,
            Children::List(items) => {
                let (at, rest) = path.strip_prefix('[')?.split_once(']')?;
                Some((items.get(at.parse::<usize>().ok()?)?, rest))
            }
            // Keys may contain dots, so the longest matching key is the right one.
            Children::Table(fields) => {
                let path = path.strip_prefix('.').unwrap_or(path);
                let fits = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
                let fitting = fields.iter().filter_map(|(key, node)| {
                    let rest = path.strip_prefix(key.as_str())?;
                    (!key.is_empty() && fits(rest)).then_some((node, rest))
                });
                fitting.min_by_key(|(_, rest)| rest.len())
            }
        }
    }
}

impl<'de> Deserialize<'de> for PositionNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Children>::deserialize(deserializer)?;
        let (line, column) = (spanned.referenced.line(), spanned.referenced.column());
        Ok(Self { place: (line > 0).then_some(Position { line, column }), below: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Children {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

struct Visitor;

macro_rules! nothing_below {
    ($($visit:ident: $type:ty),*) => {
        $(fn $visit<E: de::Error>(self, _: $type) -> Result<Children, E> {
            Ok(Children::Nothing)
        })*
    };
}

impl<'de> de::Visitor<'de> for Visitor {
    type Value = Children;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    nothing_below!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128, visit_f64: f64,
        visit_str: &str, visit_bytes: &[u8]);

    fn visit_unit<E: de::Error>(self) -> Result<Children, E> {
        Ok(Children::Nothing)
    }

    fn visit_none<E: de::Error>(self) -> Result<Children, E> {
        Ok(Children::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Children, D::Error> {
        Children::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Children, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Children::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Children, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((key, node)) = map.next_entry::<String, PositionNode>()? {
            fields.insert(key, node);
        }
        Ok(Children::Table(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_place_in_block_flow_and_json() {
        let block = "# 注释\nid: 小店\nskills:\n  - id: a\n    http:\n      url: x\n      headers: {a.b: 值, a: y}\n  - id: b\n";
        let positions = Positions::read(block);
        for (path, place) in [
            ("id", "line 2, column 5"),
            ("skills[0].id", "line 4, column 9"),
            ("skills[0].http.url", "line 6, column 12"),
            ("skills[0].http.headers.a.b", "line 7, column 22"),
            ("skills[0].http.headers.a", "line 7, column 28"),
            ("skills[0].http.timeout", "line 6, column 7"),
            ("skills[1].id", "line 8, column 9"),
            ("sop", "line 2, column 1"),
        ] {
            assert_eq!(positions.position_of(path).map(|place| place.to_string()).as_deref(), Some(place), "{path}");
        }
        let json = Positions::read("{\"id\": \"a\",\n \"tools\": [{\"id\": 5}]}");
        assert_eq!(json.position_of("tools[0].id"), Some(Position { line: 2, column: 19 }));
        assert_eq!(Positions::read("[").position_of("id"), None);
        for levels in [MAX_DEPTH - 2, 64, 100, 10_000] {
            let deep = format!("id: 5\nx: {}1{}\n", "[".repeat(levels), "]".repeat(levels));
            assert_eq!(Positions::read(&deep).position_of("id").is_some(), levels < MAX_DEPTH, "{levels}");
        }
    }
}
