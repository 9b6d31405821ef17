//! The conversation.

use super::{count, number, stage, wire, wire_stage, word, word_or};
use crate::invalid::Invalid;
use types::authoring::{
    AgentState, AlternativeOption, Category, ClarificationContext, ClarificationQuestion, Complexity, Conversation,
    Origin, Purpose, WorkflowContext,
};
use types::timestamp::Timestamp;

impl TryFrom<wire::AgentState> for AgentState {
    type Error = Invalid;

    fn try_from(state: wire::AgentState) -> Result<Self, Invalid> {
        Ok(Self {
            session_id: state.session_id,
            user_id: state.user_id,
            stage: stage("state.stage", state.stage)?,
            conversations: state.conversations.into_iter().map(Conversation::try_from).collect::<Result<_, _>>()?,
            intent_summary: state.intent_summary,
            gaps: state.gaps,
            alternatives: state.alternatives.into_iter().map(AlternativeOption::try_from).collect::<Result<_, _>>()?,
            workflow_id: Some(state.workflow_id).filter(|id| !id.is_empty()),
            debug_loop_count: count("state.debug_loop_count", state.debug_loop_count)?,
            clarification_context: state.clarification_context.unwrap_or_default().try_into()?,
            workflow_context: state.workflow_context.unwrap_or_default().try_into()?,
            created_at: Timestamp::from_millis(state.created_at),
            updated_at: Timestamp::from_millis(state.updated_at),
        })
    }
}

impl From<AgentState> for wire::AgentState {
    fn from(state: AgentState) -> Self {
        Self {
            session_id: state.session_id,
            user_id: state.user_id,
            stage: wire_stage(state.stage),
            conversations: state.conversations.into_iter().map(Into::into).collect(),
            intent_summary: state.intent_summary,
            gaps: state.gaps,
            alternatives: state.alternatives.into_iter().map(Into::into).collect(),
            workflow_id: state.workflow_id.unwrap_or_default(),
            debug_loop_count: number(state.debug_loop_count),
            clarification_context: Some(state.clarification_context.into()),
            workflow_context: Some(state.workflow_context.into()),
            created_at: state.created_at.as_millis(),
            updated_at: state.updated_at.as_millis(),
        }
    }
}

impl TryFrom<wire::Conversation> for Conversation {
    type Error = Invalid;

    fn try_from(entry: wire::Conversation) -> Result<Self, Invalid> {
        Ok(Self {
            role: word("conversations.role", &entry.role)?,
            text: entry.text,
            timestamp: entry.timestamp,
            metadata: entry.metadata,
        })
    }
}

impl From<Conversation> for wire::Conversation {
    fn from(entry: Conversation) -> Self {
        Self {
            role: entry.role.as_str().to_owned(),
            text: entry.text,
            timestamp: entry.timestamp,
            metadata: entry.metadata,
        }
    }
}

impl TryFrom<wire::ClarificationQuestion> for ClarificationQuestion {
    type Error = Invalid;

    fn try_from(question: wire::ClarificationQuestion) -> Result<Self, Invalid> {
        Ok(Self {
            id: question.id,
            question: question.question,
            category: word_or("questions.category", &question.category, Category::default())?,
            is_required: question.is_required,
            options: question.options,
        })
    }
}

impl From<ClarificationQuestion> for wire::ClarificationQuestion {
    fn from(question: ClarificationQuestion) -> Self {
        Self {
            id: question.id,
            question: question.question,
            category: question.category.as_str().to_owned(),
            is_required: question.is_required,
            options: question.options,
        }
    }
}

impl TryFrom<wire::AlternativeOption> for AlternativeOption {
    type Error = Invalid;

    fn try_from(option: wire::AlternativeOption) -> Result<Self, Invalid> {
        Ok(Self {
            id: option.id,
            title: option.title,
            description: option.description,
            approach: option.approach,
            trade_offs: option.trade_offs,
            complexity: word_or("alternatives.complexity", &option.complexity, Complexity::default())?,
            // The wire has no field for the gap. A dialogue with one gap needs no such field. Otherwise the id of the
            // alternative stands for the gap.
            resolves: String::new(),
        })
    }
}

impl From<AlternativeOption> for wire::AlternativeOption {
    fn from(option: AlternativeOption) -> Self {
        Self {
            id: option.id,
            title: option.title,
            description: option.description,
            approach: option.approach,
            trade_offs: option.trade_offs,
            complexity: option.complexity.as_str().to_owned(),
        }
    }
}

impl TryFrom<wire::ClarificationContext> for ClarificationContext {
    type Error = Invalid;

    fn try_from(context: wire::ClarificationContext) -> Result<Self, Invalid> {
        Ok(Self {
            purpose: word_or("clarification_context.purpose", &context.purpose, Purpose::InitialIntent)?,
            collected_info: context.collected_info,
            pending_questions: context.pending_questions,
            origin: word_or("clarification_context.origin", &context.origin, Origin::Create)?,
        })
    }
}

impl From<ClarificationContext> for wire::ClarificationContext {
    fn from(context: ClarificationContext) -> Self {
        Self {
            purpose: context.purpose.as_str().to_owned(),
            collected_info: context.collected_info,
            pending_questions: context.pending_questions,
            origin: context.origin.as_str().to_owned(),
        }
    }
}

impl TryFrom<wire::WorkflowContext> for WorkflowContext {
    type Error = Invalid;

    fn try_from(context: wire::WorkflowContext) -> Result<Self, Invalid> {
        Ok(Self {
            origin: word_or("workflow_context.origin", &context.origin, Origin::Create)?,
            source_workflow_id: context.source_workflow_id,
            modification_intent: context.modification_intent,
        })
    }
}

impl From<WorkflowContext> for wire::WorkflowContext {
    fn from(context: WorkflowContext) -> Self {
        Self {
            origin: context.origin.as_str().to_owned(),
            source_workflow_id: context.source_workflow_id,
            modification_intent: context.modification_intent,
        }
    }
}
