//! Conditions: `{stage}`, `not {stage}`, `{x} == 'value'`, `{score} > 0.8`, `{x} contains 'keyword'`, `true`, `false`.
//!
//! A condition is parsed before values are inserted, so no output can change its structure. An unsupported form is an
//! error: as plain text it would always hold.

use super::scope::{Found, Scope};
use super::template::{InputMapping, escaped, variable};
use std::sync::Arc;
use thiserror::Error;

/// Why a text is not a valid condition.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the condition `{condition}` {problem}; {remedy}")]
pub struct ConditionError {
    /// The text.
    pub condition: String,
    /// The problem.
    pub problem: String,
    /// How to correct it.
    pub remedy: String,
}

/// A condition: it decides whether a stage runs, a route is taken or a loop continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    text: Arc<str>,
    negated: bool,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Holds(Operand),
    Compares(Operand, Operator, Operand),
}

/// One side of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Operand {
    text: InputMapping,
    /// True if the text was quoted. The quotes are removed.
    quoted: bool,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equals,
    Greater,
    Contains,
}

impl Operator {
    const ALL: [(&'static str, Self); 3] = [("==", Self::Equals), (">", Self::Greater), ("contains", Self::Contains)];
}

impl Condition {
    /// Parses a condition. The error has the problem and a correct form.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let (negated, test) = read(text).map_err(|fault| ConditionError {
            condition: text.trim().to_owned(),
            problem: fault.problem,
            remedy: fault.remedy.unwrap_or(FORMS).to_owned(),
        })?;
        Ok(Self { text: text.into(), negated, test })
    }

    /// The condition `true`.
    pub fn always() -> Self {
        let text = "true";
        Self { text: text.into(), negated: false, test: Test::Holds(Operand::parse(text)) }
    }

    /// The condition as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Evaluates the condition. A missing or skipped output counts as empty text.
    pub fn holds(&self, scope: &Scope) -> bool {
        let holds = match &self.test {
            Test::Holds(operand) => is_true(&operand.value(scope)),
            Test::Compares(left, operator, right) => {
                let (left_value, value) = (left.value(scope), right.value(scope));
                match operator {
                    Operator::Equals => plain(&left_value) == plain(&value),
                    Operator::Greater => {
                        number(&left_value).zip(number(&value)).is_some_and(|(left, right)| left > right)
                    }
                    Operator::Contains => {
                        let word = if right.quoted { &value } else { value.trim().trim_matches(QUOTES) };
                        left_value.trim().to_lowercase().contains(&word.to_lowercase())
                    }
                }
            }
        };
        holds != self.negated
    }

    /// The variables that the condition names, each once, in the order of the text.
    pub fn get_dependencies(&self) -> Vec<String> {
        self.operands().into_iter().fold(Vec::new(), |mut names, operand| {
            for path in operand.text.variables() {
                if names.iter().all(|name: &String| name != path) {
                    names.push(path.to_owned());
                }
            }
            names
        })
    }

    /// The result of a condition without variables; `None` if it has variables.
    pub fn constant(&self) -> Option<bool> {
        let nothing = Scope::root("", None);
        self.operands().into_iter().all(Operand::is_constant).then(|| self.holds(&nothing))
    }

    /// A literal operand of `>` that is not a number. Such a condition never holds.
    pub(crate) fn no_number(&self) -> Option<&str> {
        let Test::Compares(left, Operator::Greater, right) = &self.test else { return None };
        let written = [left, right].into_iter().filter(|operand| operand.is_constant());
        written.map(|operand| operand.text.template()).find(|text| number(text).is_none())
    }

    fn operands(&self) -> Vec<&Operand> {
        match &self.test {
            Test::Holds(operand) => vec![operand],
            Test::Compares(left, _, right) => vec![left, right],
        }
    }
}

impl Operand {
    fn parse(text: &str) -> Self {
        Self { text: InputMapping::parse(text), quoted: false }
    }

    fn value(&self, scope: &Scope) -> String {
        self.text.fill(|path, filled| match scope.find_for_condition(path) {
            Found::Text(text) => filled.push_str(&text),
            Found::Empty | Found::Unknown | Found::Through => {}
        })
    }

    fn is_constant(&self) -> bool {
        self.text.variables().next().is_none()
    }
}

const QUOTES: [char; 2] = ['\'', '"'];

/// Trims white space and quotes, because models often quote their one-word answers.
fn plain(text: &str) -> &str {
    text.trim().trim_matches(QUOTES).trim()
}

fn number(text: &str) -> Option<f64> {
    plain(text).parse().ok()
}

fn is_true(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && !text.eq_ignore_ascii_case("false")
}

/// The problem of a condition. Without a remedy, the list of forms is the remedy.
pub(crate) struct ConditionFault {
    problem: String,
    remedy: Option<&'static str>,
}

const FORMS: &str = "write `{x} == 'value'`, `{x} > 0.8`, `{x} contains 'word'` or `{x}`, or `not` before one of them; \
                     a text with signs in it goes between quotes";

fn fault(problem: impl Into<String>, remedy: Option<&'static str>) -> ConditionFault {
    ConditionFault { problem: problem.into(), remedy }
}

fn read(text: &str) -> Result<(bool, Test), ConditionFault> {
    let mut rest = text.trim();
    let mut negated = false;
    while let Some(after) = word(rest, "not") {
        negated = !negated;
        rest = after.trim_start();
        if rest.is_empty() {
            return Err(fault("has nothing after `not`", None));
        }
    }
    let (left, after) = operand(rest)?;
    let Some(FoundOperator { sign, operator, rest: after }) = operator(after) else {
        // An empty condition is an empty text, which does not hold.
        let operand = left.unwrap_or_else(|| Operand::parse(""));
        return if after.is_empty() { Ok((negated, Test::Holds(operand))) } else { Err(unknown_operator(after)) };
    };
    let (right, after) = operand(after.trim_start())?;
    match (left, right) {
        _ if operator_of(after).is_some() => Err(fault("compares twice", None)),
        _ if !after.is_empty() => Err(unknown_operator(after)),
        (None, _) => Err(fault(format!("has nothing before `{sign}`"), None)),
        (Some(_), None) => Err(fault(format!("has nothing after `{sign}`"), None)),
        (Some(left), Some(right)) => Ok((negated, Test::Compares(left, operator, right))),
    }
}

/// The rest of `text` after `word`, if it begins with this word in any case.
fn word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let found = text.get(..word.len()).filter(|found| found.eq_ignore_ascii_case(word))?;
    let rest = &text[found.len()..];
    let ends = rest.is_empty() || rest.starts_with(|c: char| c.is_whitespace() || c == '{' || QUOTES.contains(&c));
    ends.then_some(rest)
}

fn operator_of(text: &str) -> Option<(&'static str, Operator)> {
    Operator::ALL.into_iter().find(|(sign, _)| match sign.starts_with(char::is_alphabetic) {
        true => word(text, sign).is_some(),
        false => text.starts_with(sign),
    })
}

/// An operator in a text.
struct FoundOperator<'t> {
    sign: &'static str,
    operator: Operator,
    /// The text behind it.
    rest: &'t str,
}

/// The operator at the beginning of `text`.
fn operator(text: &str) -> Option<FoundOperator<'_>> {
    let (sign, operator) = operator_of(text)?;
    let rest = &text[sign.len()..];
    // `>=` and `===` are different operators, which conditions do not have.
    (!rest.starts_with(['=', '>', '<'])).then_some(FoundOperator { sign, operator, rest })
}

/// The operand at the beginning of `text`, if there is one, and the rest.
fn operand(text: &str) -> Result<(Option<Operand>, &str), ConditionFault> {
    if let Some(quote) = QUOTES.into_iter().find(|quote| text.starts_with(*quote)) {
        let inner = &text[1..];
        let end = inner.find(quote).ok_or_else(|| fault("has a quote that is not closed", Some("close it")))?;
        let after = &inner[end + 1..];
        if !after.is_empty() && !after.starts_with(|c: char| c.is_whitespace() || is_sign(c)) {
            let remedy = "a text that has quotes in it goes between quotes of the other kind";
            return Err(fault("has text right after a quote", Some(remedy)));
        }
        let text = InputMapping::parse(&inner[..end]);
        return Ok((Some(Operand { text, quoted: true }), after.trim_start()));
    }
    let (found, after) = text.split_at(bare(text)?);
    Ok(((!found.is_empty()).then(|| Operand::parse(found)), after.trim_start()))
}

/// The length of an operand without quotes: a sequence of words, or variables and adjoining text.
fn bare(text: &str) -> Result<usize, ConditionFault> {
    if begins_operator(text) {
        return Ok(0);
    }
    let mut at = 0;
    let mut has_variable = false;
    while let Some(next) = text[at..].chars().next() {
        let rest = &text[at..];
        if let Some(path) = escaped(rest) {
            at += path.len() + 4;
        } else if let Some(path) = variable(rest) {
            has_variable = true;
            at += path.len() + 2;
        } else if matches!(next, '{' | '}') {
            return Err(brace(rest));
        } else if next.is_whitespace() {
            let after = rest.trim_start();
            if has_variable || begins_operator(after) || after.starts_with(QUOTES) || after.starts_with('{') {
                break;
            }
            at += rest.len() - after.len();
        } else if is_sign(next) {
            break;
        } else {
            at += next.len_utf8();
        }
    }
    Ok(at)
}

/// True for characters that are operators in other languages. In a condition they may appear in quotes only.
fn is_sign(c: char) -> bool {
    matches!(c, '=' | '>' | '<' | '!' | '&' | '|' | '(' | ')' | '＝' | '＞' | '＜' | '！' | '＆' | '｜' | '（' | '）')
        || matches!(c, '“' | '”' | '‘' | '’' | '｛' | '｝' | '≥' | '≤' | '≠')
}

/// True if `text` begins with an operator, one of conditions or one of other languages.
fn begins_operator(text: &str) -> bool {
    const WORDS: [&str; 4] = ["and", "or", "not", "contains"];
    text.starts_with(is_sign) || WORDS.iter().any(|known| word(text, known).is_some())
}

fn brace(text: &str) -> ConditionFault {
    let end = text.find('}').map_or(text.len(), |end| end + 1);
    let found: String = text[..end].chars().take(40).collect();
    let remedy = "a variable is written `{stage}`, without spaces; put a text with braces between quotes";
    fault(format!("has `{found}` in it, which is not a variable"), Some(remedy))
}

fn unknown_operator(text: &str) -> ConditionFault {
    let signs = |c: char| is_sign(c) && !matches!(c, '(' | ')' | '（' | '）');
    let end = match text.starts_with(signs) {
        true => text.find(|c| !signs(c)),
        false => text.find(|c: char| c.is_whitespace() || c == '{' || QUOTES.contains(&c)),
    };
    let first = text.chars().next().map_or(0, char::len_utf8);
    let found = &text[..end.unwrap_or(text.len()).max(first)];
    let remedy = match found {
        found if found.starts_with(['“', '”', '‘', '’']) => {
            return fault(format!("has `{found}` in it"), Some("write the quotes as `'` or `\"`"));
        }
        found if found.starts_with(['(', ')', '（', '）', '｛', '｝', '\'', '"', '{']) => {
            return fault(format!("has `{found}` where it has no meaning"), None);
        }
        "&&" | "&" | "and" | "AND" | "＆＆" | "且" | "并且" | "||" | "|" | "or" | "OR" | "｜｜" | "或" | "或者" => {
            "a condition tests one thing; let a stage decide, or use two routes or stages"
        }
        "!=" | "<>" | "！=" | "！＝" | "≠" => "write `not {x} == 'value'`",
        ">=" | "=>" | "≥" | "＞=" | "＞＝" => "write `not {y} > {x}` for `{x} >= {y}`",
        "<" | "＜" => "write `{y} > {x}` for `{x} < {y}`",
        "<=" | "=<" | "≤" | "＜=" | "＜＝" => "write `not {x} > {y}` for `{x} <= {y}`",
        "=" | "＝" | "===" | "＝＝" | "等于" | "is" => "write `{x} == 'value'`",
        "＞" | "大于" => "write `{x} > 0.8`",
        "!" | "！" => "write `not {x}`",
        "not" | "NOT" => "`not` stands before the whole condition; a text goes between quotes",
        "包含" | "includes" | "has" | "in" => "write `{x} contains 'word'`",
        _ => FORMS,
    };
    fault(format!("has the unknown operator `{found}`"), Some(remedy))
}

#[cfg(test)]
mod tests;
