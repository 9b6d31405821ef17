//! The engine's own texts in a dialogue.

use types::authoring::{
    AlternativeOption, Artifact, ErrorCode, Language, MessageContent, Origin, Stage, WorkflowContext,
};

/// The first message of a dialogue.
pub fn welcome(artifact: Artifact, context: &WorkflowContext, language: Language) -> String {
    let [thing_zh, thing_en] = match artifact {
        Artifact::Workflow => ["工作流", "workflow"],
        Artifact::Agent => ["智能体", "agent"],
    };
    let id = &context.source_workflow_id;
    match (context.origin, language) {
        (Origin::Create, Language::Zh) => format!("您想要一个什么样的{thing_zh}？请说说它何时开始、做什么、结果给谁。"),
        (Origin::Create, Language::En) => {
            format!("What {thing_en} do you want? Say when it starts, what it does, and who gets the result.")
        }
        (Origin::Edit, Language::Zh) => format!("您想修改{thing_zh} `{id}` 的什么？"),
        (Origin::Edit, Language::En) => format!("What do you want to change in the {thing_en} `{id}`?"),
        (Origin::Copy, Language::Zh) => format!("新的{thing_zh}与 `{id}` 有什么不同？"),
        (Origin::Copy, Language::En) => format!("How is the new {thing_en} to differ from `{id}`?"),
    }
}

/// Describes a stage in one sentence.
pub const fn stage(stage: Stage, language: Language) -> &'static str {
    let [zh, en] = match stage {
        Stage::Clarification => ["正在了解您的需求。", "Finding out what you want."],
        Stage::Negotiation => ["正在确认需求。", "Agreeing on the requirements."],
        Stage::GapAnalysis => {
            ["正在对照需求与现有能力。", "Comparing the requirements with the installed capabilities."]
        }
        Stage::AlternativeGeneration => {
            ["正在为缺少的能力寻找替代方案。", "Looking for alternatives to the missing capabilities."]
        }
        Stage::WorkflowGeneration => ["正在编写定义。", "Writing the definition."],
        Stage::Debug => ["正在检查并试运行定义。", "Checking the definition and trying it out."],
        Stage::Completed => ["已完成。", "Done."],
        Stage::Error => {
            ["出现故障，下一条消息将从中断处继续。", "Something failed. The next message continues where it stopped."]
        }
    };
    in_language(zh, en, language)
}

/// Describes a failure in one sentence.
pub const fn error(code: ErrorCode, language: Language) -> &'static str {
    let [zh, en] = match code {
        ErrorCode::EmptyMessage => ["消息为空，请输入内容。", "The message is empty. Please write something."],
        ErrorCode::MessageTooLarge => {
            ["消息过长，请缩短后重发。", "The message is too long. Please send a shorter one."]
        }
        ErrorCode::MaxTurns => ["本次对话的轮数已用完。", "This dialogue has used all its turns."],
        ErrorCode::Timeout => ["本阶段超时，请再试一次。", "This stage took too long. Please try again."],
        ErrorCode::ModelUnavailable => {
            ["暂时无法连接模型，请稍后再试。", "The model cannot be reached. Please try again later."]
        }
        ErrorCode::InvalidAnswer => {
            ["模型的回答无法使用，请再试一次。", "The model's answer cannot be used. Please try again."]
        }
        ErrorCode::TokenBudget => ["令牌预算已用完。", "The token budget is spent."],
        ErrorCode::UnknownWorkflow => {
            ["要修改的工作流或智能体不存在。", "The workflow or agent to change does not exist."]
        }
        ErrorCode::UnknownSession => ["会话不存在。", "The session does not exist."],
        ErrorCode::StateConflict => [
            "会话状态已被其他程序修改，请重发消息。",
            "Another program has changed the dialogue. Please send the message again.",
        ],
        ErrorCode::PublishRefused => ["未能发布，草稿已保留。", "Publishing was refused. The draft is kept."],
        ErrorCode::AgentUnavailable => {
            ["无法连接创作服务，请稍后再试。", "The authoring service cannot be reached. Please try again later."]
        }
        ErrorCode::StoreUnavailable => {
            ["暂时无法访问存储，请稍后再试。", "The store cannot be reached. Please try again later."]
        }
        ErrorCode::Unavailable => {
            ["暂无可用的处理进程，消息已排队。", "No worker is available. The message is queued."]
        }
        ErrorCode::Cancelled => ["已取消。", "Cancelled."],
        ErrorCode::Internal => ["内部错误。", "An internal error."],
    };
    in_language(zh, en, language)
}

/// The text about gaps that do not stop the work.
pub fn optional_gaps(gaps: &[String], language: Language) -> String {
    let zh = "以下可选能力尚未安装，将不会包含在内：";
    let en = "These optional parts are not installed and are left out:";
    with_list(in_language(zh, en, language), gaps.iter().map(String::as_str))
}

/// The text about gaps that no alternative closes, with the alternatives that were offered.
pub fn hopeless_gaps(gaps: &[String], alternatives: &[AlternativeOption], language: Language) -> String {
    let zh = "以下必需能力始终缺失，目前无法实现。请修改需求，或安装这些能力后再试：";
    let en = "These required parts are still missing, so it cannot be done as it is. Please change the requirements, or install them:";
    let mut text = with_list(in_language(zh, en, language), gaps.iter().map(String::as_str));
    if !alternatives.is_empty() {
        let offered = in_language("曾提出的替代方案：", "Alternatives that were offered:", language);
        text.push('\n');
        text.push_str(&with_list(offered, alternatives.iter().map(|one| one.title.as_str())));
    }
    text
}

/// The text after the last failed check, with the reasons.
pub fn failed_checks(problems: &[String], diagnosis: &str, language: Language) -> String {
    let zh = "生成的定义未能通过检查，请调整需求：";
    let en = "The definition did not pass its checks. Please change the requirements:";
    let reasons = [diagnosis].into_iter().filter(|text| !text.is_empty()).chain(problems.iter().map(String::as_str));
    with_list(in_language(zh, en, language), reasons)
}

/// The reasons why the document of an author on another server failed its checks here. This author reads them.
pub fn refused_document(problems: &[String], language: Language) -> String {
    let zh = "上一份定义未能通过检查，请重写并改正：";
    let en = "The last definition did not pass its checks. Write it again without these problems:";
    with_list(in_language(zh, en, language), problems.iter().map(String::as_str))
}

/// The text about the finished artefact.
pub fn completed(artifact: Artifact, id: &str, published: bool, language: Language) -> String {
    match (language, artifact, published) {
        (Language::Zh, Artifact::Workflow, true) => format!("工作流 {id} 已创建，可以运行。"),
        (Language::Zh, Artifact::Agent, true) => format!("智能体 {id} 已发布。"),
        (Language::Zh, Artifact::Workflow, false) => format!("工作流 {id} 的草稿已通过检查，等待发布。"),
        (Language::Zh, Artifact::Agent, false) => format!("智能体 {id} 的草稿已通过检查，等待发布。"),
        (Language::En, Artifact::Workflow, true) => format!("The workflow {id} is created and can run."),
        (Language::En, Artifact::Agent, true) => format!("The agent {id} is published."),
        (Language::En, Artifact::Workflow, false) => {
            format!("The draft of the workflow {id} passed its checks. Publish it when you like.")
        }
        (Language::En, Artifact::Agent, false) => {
            format!("The draft of the agent {id} passed its checks. Publish it when you like.")
        }
    }
}

/// The questions or alternatives of a message as text, for a message without a text of its own.
pub(super) fn listed(content: &MessageContent) -> String {
    let questions = content.questions.iter().map(|question| question.question.as_str());
    let titles = content.alternatives.iter().map(|one| one.title.as_str());
    let lines = (1..).zip(questions.chain(titles)).map(|(number, line)| format!("{number}. {line}"));
    lines.collect::<Vec<_>>().join("\n")
}

fn with_list<'a>(text: &str, items: impl Iterator<Item = &'a str>) -> String {
    items.fold(text.to_owned(), |text, item| format!("{text}\n- {item}"))
}

const fn in_language(zh: &'static str, en: &'static str, language: Language) -> &'static str {
    match language {
        Language::Zh => zh,
        Language::En => en,
    }
}
