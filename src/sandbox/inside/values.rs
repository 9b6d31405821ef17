//! JSON to values of the interpreter, and back.

use monty_types::{MontyDate, MontyDateTime, MontyObject};
use num_bigint::BigInt;
use serde_json::{Map, Number, Value};

/// The most levels of an output. The worker reads at most 128.
const MAX_LEVELS: usize = 100;

/// The value of the interpreter for a JSON value.
pub(super) fn object(value: Value) -> MontyObject {
    match value {
        Value::Null => MontyObject::None,
        Value::Bool(truth) => MontyObject::Bool(truth),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => MontyObject::Int(whole),
            (None, Some(whole)) => MontyObject::BigInt(BigInt::from(whole)),
            (None, None) => MontyObject::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => MontyObject::String(text),
        Value::Array(items) => MontyObject::List(items.into_iter().map(object).collect()),
        Value::Object(fields) => {
            let pairs: Vec<_> =
                fields.into_iter().map(|(name, field)| (MontyObject::String(name), object(field))).collect();
            MontyObject::dict(pairs)
        }
    }
}

/// The JSON value of an output. The error names the value that has none.
pub(super) fn json(output: MontyObject) -> Result<Value, String> {
    converted(output, MAX_LEVELS)
}

fn converted(output: MontyObject, levels: usize) -> Result<Value, String> {
    let Some(levels) = levels.checked_sub(1) else {
        return Err(format!("the output is nested more than {MAX_LEVELS} levels deep; flatten it"));
    };
    let list = |items: Vec<MontyObject>| {
        items.into_iter().map(|item| converted(item, levels)).collect::<Result<Vec<_>, _>>().map(Value::Array)
    };
    match output {
        MontyObject::None => Ok(Value::Null),
        MontyObject::Bool(truth) => Ok(Value::Bool(truth)),
        MontyObject::Int(whole) => Ok(whole.into()),
        MontyObject::BigInt(whole) => match u64::try_from(&whole) {
            Ok(whole) => Ok(whole.into()),
            Err(_) => Err("the output has a whole number of more than 64 bits; return it as a text".to_owned()),
        },
        MontyObject::Float(number) => match Number::from_f64(number) {
            Some(number) => Ok(Value::Number(number)),
            None => Err(format!("the output has the number {number}, which JSON does not have; return None instead")),
        },
        MontyObject::String(text) | MontyObject::Path(text) => Ok(Value::String(text)),
        MontyObject::List(items)
        | MontyObject::Tuple(items)
        | MontyObject::Set(items)
        | MontyObject::FrozenSet(items) => list(items),
        MontyObject::NamedTuple { values, .. } => list(values),
        MontyObject::Dict(pairs) => fields(pairs, levels),
        MontyObject::ClassInstance(instance) if instance.class_type.is_dataclass => fields(instance.attrs, levels),
        MontyObject::Date(date) => Ok(Value::String(day(&date))),
        MontyObject::DateTime(time) => Ok(Value::String(moment(&time))),
        MontyObject::Cycle(..) => Err("the output contains itself; return a copy without the cycle".to_owned()),
        other => {
            let shown: String = other.to_string().chars().take(60).collect();
            Err(format!("the output has `{shown}`, which is no JSON; return texts, numbers, lists and dicts"))
        }
    }
}

fn fields(pairs: impl IntoIterator<Item = (MontyObject, MontyObject)>, levels: usize) -> Result<Value, String> {
    let mut fields = Map::new();
    for (key, field) in pairs {
        // As `json.dumps` writes keys.
        let name = match key {
            MontyObject::String(name) => name,
            MontyObject::Int(whole) => whole.to_string(),
            MontyObject::Bool(truth) => truth.to_string(),
            MontyObject::None => "null".to_owned(),
            MontyObject::Date(date) => day(&date),
            other => return Err(format!("the output has the key `{other}`; keys are texts")),
        };
        fields.insert(name, converted(field, levels)?);
    }
    Ok(Value::Object(fields))
}

fn day(date: &MontyDate) -> String {
    format!("{:04}-{:02}-{:02}", date.year, date.month, date.day)
}

/// The time as `isoformat` writes it.
fn moment(time: &MontyDateTime) -> String {
    let MontyDateTime { year, month, day, hour, minute, second, .. } = time;
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if time.microsecond > 0 {
        text.push_str(&format!(".{:06}", time.microsecond));
    }
    if let Some(offset) = time.offset_seconds {
        let (sign, offset) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs());
        text.push_str(&format!("{sign}{:02}:{:02}", offset / 3_600, offset / 60 % 60));
    }
    text
}
