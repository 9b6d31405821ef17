//! The alternatives for a gap: an item of the catalogue, an API of the user, or leaving the part out.

use super::Author;
use super::needs::{HTTP, LLM, Need, Role};
use decisions::authoring::answer::Alternatives;
use types::authoring::state::MAX_GAPS;
use types::authoring::{AlternativeOption, Complexity};

/// The approach of leaving the part out.
pub(super) const LEAVE_OUT: &str = "-";

/// Returns the approach in the fact that a choice stores: `title: approach`.
pub(super) fn approach(fact: &str) -> &str {
    fact.rsplit_once(": ").map_or(fact, |(_, approach)| approach)
}

impl Author<'_> {
    pub(super) fn offer(&self) -> Alternatives {
        if !self.stored.state.alternatives.is_empty() {
            let zh = "我没有认出您的选择。请只回复一个选项的编号、标识或标题。";
            let en = "I do not recognise a choice. Please reply with the number, the id or the title of one option, and nothing else.";
            return Alternatives { reply: self.said(zh, en), alternatives: Vec::new() };
        }
        let gaps: Vec<Need<'_>> = self.needs().into_iter().filter(|need| need.provider.is_none()).collect();
        let mut found = Vec::new();
        for gap in &self.stored.state.gaps {
            // A gap that the slots no longer contain can still be left out.
            let role = gaps.iter().find(|need| need.need == *gap).map_or(Role::Work, |need| need.role);
            found.extend(self.ways_around(gap, role, gaps.len()));
        }
        found.truncate(MAX_GAPS);
        for (number, one) in (1..).zip(&mut found) {
            one.id = format!("alt_{number}");
        }
        let list = self.stored.state.gaps.join(self.text("、", ", ").as_str());
        let zh = format!("当前的能力清单里没有：{list}。请选择一种替代方案，回复编号即可。");
        let en = format!("The catalogue does not name: {list}. Please choose a way around by its number.");
        Alternatives { reply: self.said(&zh, &en), alternatives: found }
    }

    fn ways_around(&self, gap: &str, role: Role, gaps: usize) -> Vec<AlternativeOption> {
        let mut ways = Vec::new();
        for item in self.nearest(gap).into_iter().take(3) {
            ways.push(self.way(
                gap,
                [&format!("改用 {}", item.id), &format!("Use {} instead", item.id)],
                &item.line,
                &item.id,
            ));
        }
        if role == Role::Start && self.item("trigger.api").is_some() {
            let line = self.text(
                "由别的系统调用接口来启动；引擎自己不监视。",
                "Another system starts it by a call of the API; the engine itself watches nothing.",
            );
            ways.push(self.way(
                gap,
                [&format!("由接口调用启动，代替“{gap}”"), &format!("Start it by the API instead of \"{gap}\"")],
                &line,
                "trigger.api",
            ));
            return ways;
        }
        if role == Role::Work && !self.is_agent() && self.item(LLM).is_some() {
            let line = self.text(
                "语言模型只看到文字，不会操作别的系统。",
                "A model sees only the text, and operates no other system.",
            );
            ways.push(self.way(
                gap,
                [&format!("让语言模型处理“{gap}”"), &format!("Let a language model do \"{gap}\"")],
                &line,
                LLM,
            ));
        }
        if !self.is_agent() && self.item(HTTP).is_some() {
            let line = self.text("请给出接口的完整地址。", "You give the complete address of the API.");
            ways.push(self.way(
                gap,
                [&format!("为“{gap}”调用您自己的 HTTP 接口"), &format!("Call your own HTTP API for \"{gap}\"")],
                &line,
                HTTP,
            ));
        }
        if gaps > 1 || role != Role::Work || ways.is_empty() {
            let line = self.text("这一步不做。", "This part is not done.");
            ways.push(self.way(gap, [&format!("不包含“{gap}”"), &format!("Leave \"{gap}\" out")], &line, LEAVE_OUT));
        }
        ways
    }

    fn way(&self, gap: &str, title: [&str; 2], line: &str, approach: &str) -> AlternativeOption {
        let trade_off = match approach {
            LEAVE_OUT => self.text("少了这一步", "this part is missing"),
            HTTP => self.text("您要自己提供这个接口", "you have to provide the API"),
            _ => self.text(&format!("不是“{gap}”本身"), &format!("it is not \"{gap}\" itself")),
        };
        let complexity = if approach == HTTP { Complexity::Medium } else { Complexity::Simple };
        AlternativeOption {
            id: String::new(),
            title: self.text(title[0], title[1]),
            description: self.said(line, line),
            approach: approach.to_owned(),
            trade_offs: vec![trade_off],
            complexity,
            resolves: gap.to_owned(),
        }
    }
}
