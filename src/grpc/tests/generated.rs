//! The code of `generated` is that of `proto/workflow_agent.proto`. `TURNWHEEL_TEST_REGENERATE=1` writes it.

use crate::generated::DESCRIPTORS;
use base::config::Environment;
use prost::Message;
use prost::bytes::Bytes;
use std::fs;
use std::path::Path;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Makes code and descriptors in `folder`, without protoc.
fn generate(folder: &Path) {
    let proto = Path::new(HERE).join("../../proto");
    let mut compiler = protox::Compiler::new([proto]).unwrap();
    compiler.include_source_info(true).open_file("workflow_agent.proto").unwrap();
    let mut files = compiler.file_descriptor_set();
    let made = tonic_prost_build::configure().build_transport(false).btree_map(".").out_dir(folder);
    made.compile_fds(files.clone()).unwrap();
    // Comments are of no use to reflection.
    files.file.iter_mut().for_each(|file| file.source_code_info = None);
    fs::write(folder.join("workflow_agent.fds"), files.encode_to_vec()).unwrap();
}

#[test]
fn the_code_is_that_of_the_proto_file() {
    let (made, kept) = (tempfile::tempdir().unwrap(), Path::new(HERE).join("generated"));
    generate(made.path());
    for name in ["workflow_agent.rs", "workflow_agent.fds"] {
        let new = fs::read(made.path().join(name)).unwrap();
        if Environment::from_process().get("TURNWHEEL_TEST_REGENERATE").is_some() {
            fs::write(kept.join(name), &new).unwrap();
        }
        assert!(
            fs::read(kept.join(name)).unwrap() == new,
            "src/grpc/generated/{name} is not that of proto/workflow_agent.proto; run this test with \
             TURNWHEEL_TEST_REGENERATE=1, and commit the file"
        );
    }
}

/// Field numbers are for ever: stored or older clients use them.
#[test]
fn the_numbers_of_the_fields_stay() {
    let files = tonic_prost_build::FileDescriptorSet::decode(Bytes::from_static(DESCRIPTORS)).unwrap();
    let mut lines = Vec::new();
    for message in &files.file[0].message_type {
        let fields = message.field.iter().map(|field| format!("{}={}", field.name(), field.number()));
        lines.push(format!("{}: {}", message.name(), fields.collect::<Vec<_>>().join(" ")));
    }
    for kind in &files.file[0].enum_type {
        let values = kind.value.iter().map(|value| format!("{}={}", value.name(), value.number()));
        lines.push(format!("{}: {}", kind.name(), values.collect::<Vec<_>>().join(" ")));
    }
    assert_eq!(lines, NUMBERS);
}

const NUMBERS: [&str; 14] = [
    "ConversationRequest: session_id=1 user_id=2 user_message=3 current_state=4 workflow_context=5 config=6",
    "ConversationResponse: session_id=1 type=2 message=3 status=4 error=5 updated_state=8 timestamp=9 is_final=10",
    "AgentState: session_id=1 user_id=2 stage=3 conversations=4 intent_summary=5 gaps=6 alternatives=7 workflow_id=8 \
     debug_loop_count=9 clarification_context=10 workflow_context=11 created_at=12 updated_at=13",
    "Conversation: role=1 text=2 timestamp=3 metadata=4",
    "ClarificationQuestion: id=1 question=2 category=3 is_required=4 options=5",
    "AlternativeOption: id=1 title=2 description=3 approach=4 trade_offs=5 complexity=6",
    "ClarificationContext: purpose=1 collected_info=2 pending_questions=3 origin=4",
    "WorkflowContext: origin=1 source_workflow_id=2 modification_intent=3",
    "ConversationConfig: enable_streaming=1 max_turns=2 timeout_seconds=3 language=4 enable_rag=5 preferences=6",
    "MessageContent: text=1 role=2 message_type=3 metadata=4 questions=5 alternatives=6",
    "StatusContent: new_stage=1 previous_stage=2 stage_description=3 pending_actions=4",
    "ErrorContent: error_code=1 message=2 details=3 is_recoverable=4",
    "ResponseType: MESSAGE=0 STATUS=1 ERROR=2",
    "WorkflowStage: CLARIFICATION=0 NEGOTIATION=1 GAP_ANALYSIS=2 ALTERNATIVE_GENERATION=3 WORKFLOW_GENERATION=4 DEBUG=5 \
     COMPLETED=6 STAGE_ERROR=7",
];
