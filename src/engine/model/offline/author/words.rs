//! Words and patterns of both languages.

use crate::knowledge::words::terms;
use crate::prompt::is_chinese;
use regex::Regex;
use std::sync::LazyLock;

/// Compiles a pattern of this folder. It never returns `None` for a pattern of the list below, because a test compiles
/// them all.
fn pattern(text: &str) -> Option<Regex> {
    Regex::new(text).ok()
}

macro_rules! patterns {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)*) => {
        $($(#[$doc])* pub(super) static $name: LazyLock<Option<Regex>> = LazyLock::new(|| pattern($text));)*

        #[cfg(test)]
        pub(super) fn all_patterns() -> Vec<(&'static str, bool)> {
            vec![$((stringify!($name), $name.is_some())),*]
        }
    };
}

patterns! {
    /// The words around a wish that are not a part of it.
    FRAME = r"(?i)^\s*(?:(?:你好|您好|hello|hi|hey)[,，!！。.\s]+)?(?:请(?:你|帮我)?|帮我|麻烦(?:你|您)?|我(?:想要?|要|需要)|(?:please|could you|can you|i (?:want|need|would like)|i'd like)(?: to)?(?: have)?)?[,，\s]*(?:(?:做|创建|建立?|生成|写|制作|设计|新建|搭)(?:一?个|一?条)?|一个|一条|(?:(?:make|create|build|write|generate|design)\s+)?(?:me\s+)?(?:an?|the)\s+(?:new\s+)?)?";
    /// A wish between the frame and the kind of artefact: “…的工作流”, or the text after a colon.
    ZH_THING = r"(?s)^(?P<wish>.*?)的?(?:工作流程?|流程|智能体|机器人|助手)(?:[。.!！]*|[:：](?P<more>.*))$";
    /// A wish after the kind of artefact: “workflow that …”, “agent: …”.
    THING = r"(?is)^(?:工作流程?|流程|智能体|机器人|助手|(?:new\s+)?(?:workflow|flow|agent|bot|assistant)\b)\s*(?:[,，:：]|that\b|which\b|who\b|to\b|for\b|用来|用于|负责)?\s*(?:can\s+)?(?P<wish>.*)$";
    /// “每当…就…”, “当…时，…”.
    ZH_WHEN = r"(?s)(?:每当|当|如果|一旦)(?P<trigger>.+?)(?:的?时候?[,，]?就?|[,，]就?|就)(?P<rest>.+)$";
    /// “when …, …”, “when … then …”.
    WHEN = r"(?is)\b(?:when(?:ever)?|every time|each time|as soon as|if)\s+(?P<trigger>[^,]+?)\s*(?:,\s*(?:then\s+)?|\s+then\s+)(?P<rest>.+)$";
    /// A time that repeats.
    SCHEDULE = r"(?i)(?:每(?:天|日|周[一二三四五六日天]?|星期[一二三四五六日天]?|个?月|个?小时|分钟|隔[^，,。]{1,12})(?:的?(?:早上|上午|中午|下午|晚上)?[0-9一二三四五六七八九十]{1,3}点(?:半|[0-9]{1,2}分?)?)?|\b(?:every (?:day|hour|week|month|morning|evening|monday|tuesday|wednesday|thursday|friday|saturday|sunday|[0-9]+ (?:minutes|hours|days))|daily|hourly|weekly)\b(?: at [0-9]{1,2}(?::[0-9]{2})?(?: ?[ap]m)?)?)";
    /// “把…总结…”: the input before the verb.
    ZH_INPUT = r"(?s)[把将](?P<input>.+?)(?:总结|概括|归纳|翻译|改写|润色|分类|提取|整理|压缩|缩写|扩写|转发|转成|转换|变成|写成|做成|发送|发给|发到|发布|写入|存到|保存|推送|同步)";
    /// “summarises a text in …”: the input behind the verb.
    INPUT = r"(?i)\b(?:summari[sz]|translat|rewrit|classif|extract|forward|shorten|explain|post|send|sav|copi|copy|publish)(?:e|es|ies|y|s|ing|)?\s+(?P<input>(?:an?|the|each|every|all|my|our|new|incoming)\s+.+?)(?:\s+(?:in|into|to|as|on|by|from|and)\b|[,.;]|$)";
    /// “从…到…”.
    ZH_FROM = r"(?s)从(?P<input>.+?)(?:读取|获取|取得?|拿|抓取)?(?:[,，]|到|发到|写到|同步到)";
    /// “from … to …”.
    FROM = r"(?i)\bfrom\s+(?P<input>.+?)(?:\s+(?:to|into|and|then)\b|[,.;]|$)";
    /// “转发到…”.
    ZH_OUTPUT = r"(?:发送到|发送给|转发到|转发给|发到|发给|写入|写到|保存到|存到|推送到|发布到|发布在|同步到|通知到|通知|发布)(?P<output>[^，,。；;！!]+)";
    /// “post it to …”.
    OUTPUT = r"(?i)\b(?:send|forward|post|save|write|copy|publish|sync|mail|push|deliver|put)(?:s|es|ing)?\b[^,.;]*?\b(?:to|into|on|in)\s+(?P<output>[^,.;]+)";
    /// The words between two parts of the work.
    JOINT = r"(?i)[，,；;]\s*(?:然后|之后|接着|再|并且?|and\s+|then\s+)*|\s*(?:然后|接着)|\s+(?:and\s+)?then\s+|\s+and\s+";
    /// Work on a text, which a model can do.
    TEXT_WORK = r"(?i)总结|摘要|概括|归纳|翻译|译成|改写|润色|分类|提取|整理|起草|撰写|写一|写成|扩写|缩写|压缩|解释|回答|回复|列出|对比|分析|生成|取名|\b(?:summar|translat|rewrit|rephras|classif|categor|extract|draft|writ|shorten|explain|answer|repl(?:y|ies)|list|compar|analy[sz]|generat|describ|correct)";
    /// The purpose of an agent that does more than answer.
    ACTION = r"(?i)查询|查一?下|预订|预约|下单|发送|转发|提交|登记|记录|取消|\b(?:look(?:s|ing)? up|book|order|send|forward|submit|register|record|cancel|track|notif)";
    /// A complete address.
    ADDRESS = r#"https?://[^\s，。；、）)>"'”」]+"#;
    /// A name in Latin letters. In Chinese it needs no space around it.
    LATIN = r"[A-Za-z][A-Za-z0-9+#._-]*";
    /// An item of a numbered list.
    NUMBERED = r"^\s*(?P<number>[0-9]{1,2})\s*[.、:：)）]\s*(?P<value>.+)$";
    /// “把 A 改成 B”.
    ZH_REPLACE = r"(?s)^(?:请)?[把将]\s*[“”「『']?(?P<old>.+?)[“”」』']?\s*(?:改成|改为|换成|换为|替换成|替换为)\s*[“”「『']?(?P<new>.+?)[“”」』']?\s*[。.!！]?$";
    /// “replace A with B”, “change A to B”.
    REPLACE = r#"(?is)^(?:please\s+)?(?:replace|change)\s+["'“”]?(?P<old>.+?)["'“”]?\s+(?:with|to|into|by)\s+["'“”]?(?P<new>.+?)["'“”]?\s*\.?$"#;
}

/// External systems whose names are written in lower case or in Chinese, the longer names first.
const THINGS: [&str; 34] = [
    "微信朋友圈",
    "微信公众号",
    "企业微信",
    "小红书",
    "朋友圈",
    "公众号",
    "数据库",
    "微信",
    "微博",
    "抖音",
    "钉钉",
    "飞书",
    "短信",
    "邮箱",
    "邮件",
    "日历",
    "网盘",
    "打印机",
    "电话",
    "知乎",
    "text message",
    "spreadsheet",
    "database",
    "calendar",
    "printer",
    "website",
    "e-mail",
    "email",
    "webhook",
    "mailbox",
    "mail",
    "sms",
    "fax",
    "phone",
];

/// Capitalised words that are not names of external systems.
const PLAIN: [&str; 52] = [
    "a",
    "i",
    "ai",
    "an",
    "the",
    "api",
    "http",
    "json",
    "text",
    "id",
    "ok",
    "pdf",
    "csv",
    "html",
    "markdown",
    "llm",
    "english",
    "chinese",
    "german",
    "french",
    "spanish",
    "japanese",
    "korean",
    "russian",
    "italian",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "utc",
    "every",
    "each",
    "when",
    "new",
    "user",
    "if",
    "at",
];

/// Messages that only say yes.
const YES: [&str; 50] = [
    "好",
    "好的",
    "好吧",
    "好啊",
    "可以",
    "可以的",
    "确认",
    "确定",
    "是",
    "是的",
    "对",
    "对的",
    "行",
    "行的",
    "没问题",
    "没有问题",
    "同意",
    "就这样",
    "开始",
    "开始吧",
    "继续",
    "嗯",
    "可以开始",
    "好没问题",
    "ok",
    "okay",
    "yes",
    "y",
    "yep",
    "yeah",
    "sure",
    "fine",
    "confirm",
    "confirmed",
    "agreed",
    "go",
    "go ahead",
    "do it",
    "looks good",
    "lgtm",
    "correct",
    "that is right",
    "thats right",
    "right",
    "perfect",
    "great",
    "yes please",
    "好的可以",
    "是的没问题",
    "yes go ahead",
];

/// Messages that only say no, or that the user has nothing to add.
const NO: [&str; 14] = [
    "没有",
    "没",
    "无",
    "不知道",
    "省略",
    "跳过",
    "不用",
    "不需要",
    "no",
    "none",
    "skip",
    "leave it out",
    "i have none",
    "i do not know",
];

/// Messages that only greet.
const GREETINGS: [&str; 14] = [
    "你好",
    "您好",
    "嗨",
    "在吗",
    "早上好",
    "下午好",
    "晚上好",
    "hello",
    "hi",
    "hey",
    "good morning",
    "good evening",
    "help",
    "帮助",
];

/// The group of the pattern's first match, trimmed of space and punctuation; empty ones are none.
pub(super) fn group<'t>(pattern: &LazyLock<Option<Regex>>, name: &str, text: &'t str) -> Option<&'t str> {
    let found = pattern.as_ref()?.captures(text)?.name(name)?.as_str();
    Some(trimmed(found)).filter(|found| !found.is_empty())
}

/// The first match of the pattern.
pub(super) fn first<'t>(pattern: &LazyLock<Option<Regex>>, text: &'t str) -> Option<&'t str> {
    pattern.as_ref()?.find(text).map(|found| found.as_str())
}

/// True if the pattern is somewhere in the text.
pub(super) fn has(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// A text without space and punctuation at its ends.
pub(super) fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ",.;:!?，。；：！？、".contains(c))
}

/// True if the whole message says yes.
pub(super) fn is_yes(message: &str) -> bool {
    YES.contains(&plain(message).as_str())
}

/// True if the whole message only says no.
pub(super) fn is_no(message: &str) -> bool {
    NO.contains(&plain(message).as_str())
}

/// True if the whole message only greets.
pub(super) fn is_greeting(message: &str) -> bool {
    GREETINGS.contains(&plain(message).as_str())
}

/// The words in lower case, without punctuation.
fn plain(message: &str) -> String {
    let kept: String = message.chars().filter(|c| c.is_alphanumeric() || c.is_whitespace()).collect();
    kept.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// Returns the wish in a message, without words such as “please make a workflow that”; empty without a wish.
pub(super) fn wish(message: &str) -> String {
    let message = message.trim();
    if is_greeting(message) {
        return String::new();
    }
    let begins = FRAME.as_ref().and_then(|frame| frame.find(message)).map_or(0, |found| found.end());
    let rest = &message[begins..];
    if let Some(wish) = THING.as_ref().and_then(|thing| thing.captures(rest)?.name("wish")) {
        return trimmed(wish.as_str()).to_owned();
    }
    let framed = ZH_THING.as_ref().filter(|_| begins > 0).and_then(|thing| thing.captures(rest));
    if let Some(found) = framed {
        let part = |name| found.name(name).map_or("", |part| trimmed(part.as_str()));
        return match (part("wish"), part("more")) {
            (wish, "") => wish.to_owned(),
            (wish, more) => format!("{wish}：{more}"),
        };
    }
    // The frame may have removed a part of the wish if the kind of artefact is missing, as in “写一首诗”.
    trimmed(message).to_owned()
}

/// Returns the names of external systems in a text, each once, in order. If `is_sentence`, the first word of an
/// English text is skipped, because it has a capital letter in any case.
pub(super) fn names(text: &str, is_sentence: bool) -> Vec<String> {
    let addresses = ADDRESS.as_ref().map(|address| address.replace_all(text, " "));
    let text = addresses.as_deref().unwrap_or(text);
    let mut found: Vec<(usize, String)> = Vec::new();
    let is_sentence = is_sentence && !is_chinese(text);
    for name in LATIN.as_ref().into_iter().flat_map(|latin| latin.find_iter(text)) {
        let word = name.as_str().trim_end_matches(['.', '-', '_']);
        let is_name = word.chars().any(|c| c.is_ascii_uppercase()) && (!is_sentence || name.start() > 0);
        if is_name && word.len() > 1 && !PLAIN.contains(&word.to_lowercase().as_str()) {
            found.push((name.start(), word.to_owned()));
        }
    }
    let lower = text.to_ascii_lowercase();
    let mut taken: Vec<(usize, usize)> = Vec::new();
    for thing in THINGS {
        for (at, _) in lower.match_indices(thing) {
            let end = at + thing.len();
            let is_word = thing.is_ascii() && is_inside_a_word(&lower, at, end);
            if !is_word && taken.iter().all(|(begin, stop)| end <= *begin || at >= *stop) {
                taken.push((at, end));
                found.push((at, text[at..end].to_owned()));
            }
        }
    }
    // “Gmail 邮件” names one thing.
    if found.iter().any(|(_, name)| name.chars().any(|c| c.is_ascii_uppercase())) {
        found.retain(|(_, name)| !is_mail(name));
    }
    found.sort_by_key(|(at, _)| *at);
    let mut names: Vec<String> = Vec::new();
    for (_, name) in found {
        if !names.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            names.push(name);
        }
    }
    names
}

/// True if a name is the common word for mail.
pub(super) fn is_mail(name: &str) -> bool {
    ["邮件", "邮箱", "mail", "email", "e-mail", "mailbox"].contains(&name.to_lowercase().as_str())
}

fn is_inside_a_word(text: &str, begin: usize, end: usize) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    is_letter(text[..begin].chars().next_back()) || is_letter(text[end..].chars().next())
}

/// Returns the words of a text for a rule of the offline model, without words that carry no meaning.
pub(super) fn keywords(text: &str) -> Vec<String> {
    let is_latin = |word: &str| word.is_ascii() && word.len() > 3 && !terms(word).is_empty();
    let latin = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| is_latin(word)).map(str::to_lowercase);
    let chinese = terms(text).into_iter().filter(|word| !word.is_ascii() && word.chars().count() > 1);
    let mut words: Vec<String> = Vec::new();
    for word in latin.chain(chinese) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.truncate(12);
    words
}

/// A text before and after its first colon. A colon between two digits, as in a time, is none.
pub(super) fn around_colon(text: &str) -> Option<(&str, &str)> {
    let is_colon = |(at, c): &(usize, char)| {
        let next = text[at + c.len_utf8()..].chars().next();
        *c == '：' || (*c == ':' && next.is_none_or(char::is_whitespace))
    };
    let (at, colon) = text.char_indices().find(is_colon)?;
    Some((text[..at].trim(), text[at + colon.len_utf8()..].trim()))
}

/// A line `key: value`.
pub(super) fn key_value(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once([':', '：'])?;
    let (key, value) = (key.trim(), value.trim());
    (!key.is_empty() && !value.is_empty()).then_some((key, value))
}

/// A text of at most `most` characters.
pub(super) fn brief(text: &str, most: usize) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

/// A text in a field with references, where `${…}` must stay text.
pub(super) fn literal(text: &str) -> String {
    text.replace("${", "$${")
}
