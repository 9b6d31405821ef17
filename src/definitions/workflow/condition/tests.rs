use crate::workflow::condition::*;
use crate::workflow::outputs::OutputStore;

fn holds(condition: &str, outputs: &[(&str, &str)]) -> bool {
    let mut store = OutputStore::new("帮我写段代码");
    outputs.iter().for_each(|(id, output)| store.set(*id, *output));
    Condition::parse(condition).unwrap().holds(store.scope())
}

#[test]
fn conditions_hold_as_they_are_written() {
    let outputs = [
        ("yes", "a"),
        ("blank", " \n"),
        ("no", " FALSE "),
        ("found", "not found"),
        ("sly", "a == b > c contains d"),
        ("quoted", " \"success\" "),
        ("score", " 0.9\n"),
        ("text", "Please CONTINUE，继续"),
    ];
    for (condition, expected) in [
        ("true", true),
        (" TRUE ", true),
        ("false", false),
        ("False", false),
        ("", false),
        ("anything", true),
        ("{yes}", true),
        ("{blank}", false),
        ("{no}", false),
        ("{missing}", false),
        ("{missing.x}{loop.last.x}", false),
        ("{loop.iteration} == 0", true),
        ("not {missing}", true),
        ("NOT {yes}", false),
        ("not not {yes}", true),
        ("not{yes}", false),
        ("{found}", true),
        ("not {found}", false),
        ("{sly}", true),
        ("{sly} contains 'b > c'", true),
        ("{sly} == 'a == b > c contains d'", true),
        ("{quoted} == 'success'", true),
        ("{quoted} == success", true),
        ("{quoted}=='success'", true),
        ("{quoted} == 'Success'", false),
        ("not {quoted} == 'Success'", true),
        ("'success' == {quoted}", true),
        ("{missing} == ''", true),
        ("{yes}{yes} == \"aa\"", true),
        ("{yes} == '{yes}'", true),
        ("{yes} == '{{yes}}'", false),
        ("{score} > 0.8", true),
        ("{score} > '0.8'", true),
        ("{score}>0.9", false),
        ("10 > {score}", true),
        ("{yes} > 0", false),
        ("not {yes} > 0", true),
        ("{text} contains 'continue'", true),
        ("{text} CONTAINS \"继续\"", true),
        ("{text} contains please continue", true),
        ("{text} contains '暂停'", false),
        ("{missing} contains 'x'", false),
        ("{query} contains '代码'", true),
        ("{text} contains {quoted}", false),
        ("containsx", true),
    ] {
        assert_eq!(holds(condition, &outputs), expected, "{condition}");
    }
}

#[test]
fn what_a_condition_cannot_say_is_an_error_that_names_it_and_the_remedy() {
    for (condition, parts) in [
        ("{a} && {b}", vec!["`{a} && {b}`", "operator `&&`", "tests one thing"]),
        ("{a} == 'x' || {b} == 'y'", vec!["operator `||`"]),
        ("{a} and {b}", vec!["operator `and`", "tests one thing"]),
        ("{a} == x or y", vec!["operator `or`"]),
        ("{a} >= 3", vec!["operator `>=`", "`not {y} > {x}`"]),
        ("{a} <= 3", vec!["operator `<=`"]),
        ("{a} < 3", vec!["operator `<`", "`{y} > {x}`"]),
        ("{a} != 'x'", vec!["operator `!=`", "`not {x} == 'value'`"]),
        ("{a} = 'x'", vec!["operator `=`", "`{x} == 'value'`"]),
        ("{a} === 'x'", vec!["operator `===`"]),
        ("!{a}", vec!["operator `!`", "`not {x}`"]),
        ("{a} matches 'x'", vec!["operator `matches`", "`{x} contains 'word'`"]),
        ("{a} 包含 '代码'", vec!["operator `包含`", "`{x} contains 'word'`"]),
        ("{a} ＝＝ 'x'", vec!["operator `＝＝`"]),
        ("{a} contains ‘代码’", vec!["‘", "write the quotes"]),
        ("({a} == 'x')", vec!["`(`", "no meaning"]),
        ("{a} + 1 > 2", vec!["operator `+`"]),
        ("{a} == 'x' == {b}", vec!["compares twice"]),
        ("{a} > 1 > 0", vec!["compares twice"]),
        ("{a} == 'x", vec!["not closed"]),
        ("{a} == 'it's'", vec!["right after a quote", "other kind"]),
        ("{a} ==", vec!["nothing after `==`"]),
        ("== 'x'", vec!["nothing before `==`"]),
        ("{a} contains", vec!["nothing after `contains`"]),
        ("contains 'x'", vec!["nothing before `contains`"]),
        ("{a} {b}", vec!["`{`"]),
        ("not", vec!["nothing after `not`"]),
        ("{ a } == 'x'", vec!["`{ a }`", "without spaces"]),
        ("{a == 'x'", vec!["not a variable"]),
    ] {
        let error = Condition::parse(condition).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{condition}: {part}\n{error}");
        }
    }
}

#[test]
fn a_condition_tells_what_it_depends_on() {
    let condition = Condition::parse("not {b} == '{loop.last.a}{b}'").unwrap();
    assert_eq!(condition.get_dependencies(), ["b", "loop.last.a"]);
    assert_eq!((condition.as_str(), condition.constant()), ("not {b} == '{loop.last.a}{b}'", None));
    let constant = |text: &str| Condition::parse(text).unwrap().constant();
    assert_eq!((constant("true"), constant("intent contains 'x'")), (Some(true), Some(false)));
    let number = Condition::parse("{score} > high").unwrap();
    assert_eq!((number.no_number(), Condition::parse("{a} > 1").unwrap().no_number()), (Some("high"), None));
}
