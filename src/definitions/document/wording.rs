//! Errors of serde in the terms of these files: a table, a list, a text; without names of Rust types.

/// The error in the terms of the file. An error of another kind is returned unchanged.
pub(crate) fn in_file_terms(problem: &str) -> String {
    let missing = problem.strip_prefix("missing field `").and_then(|rest| rest.split_once('`'));
    if let Some((field, _)) = missing {
        return format!("`{field}` is missing");
    }
    let invalid = problem.strip_prefix("invalid type: ").or_else(|| problem.strip_prefix("invalid value: "));
    let Some((words, wanted)) = invalid.and_then(|rest| rest.rsplit_once(", expected ")) else {
        return problem.to_owned();
    };
    let wanted = wanted.split(" at line ").next().unwrap_or(wanted);
    let (found, expected) = (found(words), expected(wanted));
    let is_word = words.starts_with("boolean") && expected == "a text";
    // YAML reads these words as booleans.
    let hint =
        if is_word { "; put yes, no, on, off, y, n, true and false between quotes to mean the word" } else { "" };
    format!("found {found}, expected {expected}{hint}")
}

fn found(words: &str) -> String {
    match words.split_once(' ') {
        Some(("boolean", value)) => format!("the boolean {value}"),
        Some(("integer", value)) => format!("the number {value}"),
        Some(("floating", value)) => format!("the number {}", value.trim_start_matches("point ")),
        Some(("string", value)) => format!("the text {value}"),
        _ => match words {
            "map" => "a table".to_owned(),
            "sequence" => "a list".to_owned(),
            "null" | "unit value" => "nothing".to_owned(),
            other => other.to_owned(),
        },
    }
}

fn expected(words: &str) -> String {
    match words {
        "a string" | "a borrowed string" | "string" | "str" => "a text".to_owned(),
        "a map" | "map" => "a table".to_owned(),
        "string or map" => "a text or a table".to_owned(),
        "a sequence" | "sequence" => "a list".to_owned(),
        "a boolean" | "bool" => "true or false".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of at least 0".to_owned(),
        "i8" | "i16" | "i32" | "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        _ if words.starts_with("struct ") || words.contains("enum ") => "a table".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_tables_lists_and_texts_and_no_rust_types() {
        for (problem, expected) in [
            (
                "invalid type: boolean `true`, expected a string",
                "found the boolean `true`, expected a text; put yes, no, on, off, y, n, true and false between quotes to \
                 mean the word",
            ),
            (
                "invalid type: boolean `true`, expected struct HandoffConfig",
                "found the boolean `true`, expected a table",
            ),
            ("invalid type: map, expected a sequence", "found a table, expected a list"),
            ("invalid type: string \"x\", expected u32", "found the text \"x\", expected a whole number of at least 0"),
            ("invalid type: null, expected a string", "found nothing, expected a text"),
            ("invalid type: integer `5`, expected string or map", "found the number `5`, expected a text or a table"),
            (
                "invalid type: string \"a, expected b\", expected a boolean at line 3 column 4",
                "found the text \"a, expected b\", expected true or false",
            ),
            ("missing field `id`", "`id` is missing"),
            ("missing field `id` at line 1 column 2", "`id` is missing"),
            ("there is no such field", "there is no such field"),
        ] {
            assert_eq!(in_file_terms(problem), expected);
        }
    }
}
