//! Finds the alternative that a message chooses: by id, title or number.

use types::authoring::AlternativeOption;

/// Words that may stand around a number, the longer ones first.
const AROUND: [&str; 19] = [
    "我选择",
    "我选",
    "选择",
    "选",
    "方案",
    "选项",
    "第",
    "i choose",
    "i take",
    "choose",
    "option",
    "alternative",
    "number",
    "no.",
    "the",
    "one",
    "#",
    "个",
    "号",
];

/// The words among them that turn "one" into a number.
const COUNTING: [&str; 8] = ["方案", "选项", "第", "option", "alternative", "number", "no.", "#"];

/// Returns the alternative that `message` chooses, if it chooses exactly one.
pub(super) fn choose<'a>(offered: &'a [AlternativeOption], message: &str) -> Option<&'a AlternativeOption> {
    let said = plain(message);
    let exact = |name: fn(&AlternativeOption) -> &str| {
        let mut named = offered.iter().filter(|one| plain(name(one)) == said);
        let first = named.next()?;
        named.next().is_none().then_some(first)
    };
    exact(|one| &one.id).or_else(|| exact(|one| &one.title)).or_else(|| {
        let number = number(&said)?;
        offered.get(number.checked_sub(1)?)
    })
}

/// Returns a text in lower case, without space and punctuation at both ends.
fn plain(text: &str) -> String {
    let edge = |c: char| {
        c.is_whitespace() || (c.is_ascii_punctuation() && c != '#') || "。，！？；：、（）【】「」《》“”".contains(c)
    };
    text.trim_matches(edge).to_lowercase()
}

fn number(said: &str) -> Option<usize> {
    let mut rest = said.trim();
    if let Some(number) = numeral(rest) {
        return Some(number);
    }
    let mut counts = false;
    // Each round removes a word from one end, so the loop ends.
    loop {
        let (word, next) = AROUND.iter().find_map(|word| {
            let next = rest.strip_prefix(word).or_else(|| rest.strip_suffix(word))?;
            Some((word, next))
        })?;
        counts |= COUNTING.contains(word);
        rest = next.trim_matches(|c: char| c.is_whitespace() || ".:：。、".contains(c));
        match numeral(rest) {
            // "Pick one" chooses no alternative.
            Some(1) if !counts && ["一", "one"].contains(&rest) => return None,
            Some(number) => return Some(number),
            None => {}
        }
    }
}

fn numeral(text: &str) -> Option<usize> {
    if !text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let words: [[&str; 3]; 10] = [
        ["一", "one", "first"],
        ["二", "two", "second"],
        ["三", "three", "third"],
        ["四", "four", "fourth"],
        ["五", "five", "fifth"],
        ["六", "six", "sixth"],
        ["七", "seven", "seventh"],
        ["八", "eight", "eighth"],
        ["九", "nine", "ninth"],
        ["十", "ten", "tenth"],
    ];
    words.iter().position(|names| names.contains(&text)).map(|place| place + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered() -> Vec<AlternativeOption> {
        let one =
            |id: &str, title: &str| AlternativeOption { id: id.into(), title: title.into(), ..Default::default() };
        vec![one("alt_mail", "发邮件"), one("alt_2", "Leave it out"), one("third", "调用自己的 API")]
    }

    #[test]
    fn an_alternative_is_chosen_by_number_id_or_title() {
        let offered = offered();
        for (message, id) in [
            ("2", "alt_2"),
            (" 2。", "alt_2"),
            ("第二个", "alt_2"),
            ("选 2", "alt_2"),
            ("我选方案二", "alt_2"),
            ("Option 3", "third"),
            ("the third one", "third"),
            ("No. 1", "alt_mail"),
            ("#1", "alt_mail"),
            ("one", "alt_mail"),
            ("方案一", "alt_mail"),
            ("the first one", "alt_mail"),
            ("ALT_MAIL", "alt_mail"),
            ("发邮件！", "alt_mail"),
            ("leave it out", "alt_2"),
        ] {
            assert_eq!(choose(&offered, message).map(|one| one.id.as_str()), Some(id), "{message}");
        }
        for message in [
            "随便",
            "4",
            "0",
            "",
            "第",
            "2 或 3",
            "发邮件吧，或者别的",
            "999999",
            "选",
            "No one",
            "选一个",
            "一个",
            "the one",
        ] {
            assert_eq!(choose(&offered, message), None, "{message}");
        }
    }

    #[test]
    fn a_title_that_two_have_chooses_neither() {
        let mut offered = offered();
        offered[2].title = "发邮件".into();
        assert_eq!(choose(&offered, "发邮件"), None);
    }
}
