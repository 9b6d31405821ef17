//! Random dialogues. Whatever the user and the model answer, and whatever fails, each turn ends with exactly one last
//! event. From every state a cooperative user and model reach the end.

use super::*;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// The largest number of steps of a turn: one reopening, and three documents each time.
const MOST_STEPS: usize = 40;

/// What happens in one step.
#[derive(Clone, Debug)]
struct Chance {
    pick: Index,
    flags: [bool; 4],
    fails: bool,
}

fn chance() -> impl Strategy<Value = Chance> {
    let fails = prop::bool::weighted(0.04);
    (any::<Index>(), any::<[bool; 4]>(), fails).prop_map(|(pick, flags, fails)| Chance { pick, flags, fails })
}

fn message() -> impl Strategy<Value = &'static str> {
    select(vec!["1", "2", "alt_1", "省略这一步", "随便", "好", "", "改一下需求", "9"])
}

/// Something that a model, the checks or a publication could answer.
fn anything(asked: Next, chance: &Chance) -> Input {
    let [first, second, third, fourth] = chance.flags;
    let questions = if first { vec![question("q", second)] } else { vec![] };
    match asked {
        Next::Wait => unreachable!("the turn goes on"),
        Next::Ask(Question::Clarification) => clarified(questions),
        Next::Ask(Question::Negotiation) => Input::Negotiated(Negotiation {
            reply: "…".into(),
            questions,
            agreed: third || fourth,
            reopen: second && third,
            ..Default::default()
        }),
        Next::Ask(Question::GapAnalysis) => {
            let provider = first.then_some("tool.mail.gmail");
            let needs = [("mail", second, provider), ("朋友圈", third && fourth, None)];
            let Input::Analysed(answer, catalogue) = analysed(&needs) else { unreachable!() };
            Input::Analysed(GapAnalysis { reopen: first && third, ..answer }, catalogue)
        }
        Next::Ask(Question::AlternativeGeneration) if first => {
            Input::Offered(Alternatives { reply: "…".into(), alternatives: vec![] })
        }
        Next::Ask(Question::AlternativeGeneration) => offered(if second { "朋友圈" } else { "mail" }),
        Next::Ask(Question::WorkflowGeneration) if first && second => Input::Reopened { reply: String::new() },
        Next::Ask(Question::WorkflowGeneration) => drafted("h"),
        Next::Check => checked(first && second),
        Next::Ask(Question::Debug) => {
            Input::Diagnosed(Diagnosis { give_up: first && second && third, reopen: fourth, ..Default::default() })
        }
        Next::Publish if first && second => Input::Published(Publication::Refused("…".into())),
        Next::Publish => published("h"),
    }
}

/// An input that leads on to the next stage.
fn cooperative(asked: Next, dialogue: &Dialogue) -> Input {
    match asked {
        Next::Wait => unreachable!("the turn goes on"),
        Next::Ask(Question::Clarification) => clarified(vec![]),
        Next::Ask(Question::Negotiation) => negotiated(true),
        Next::Ask(Question::GapAnalysis) => analysed(&[("mail", true, Some("tool.mail.gmail"))]),
        Next::Ask(Question::AlternativeGeneration) => offered(&dialogue.stored.state.gaps[0]),
        Next::Ask(Question::WorkflowGeneration) => drafted("h"),
        Next::Check => checked(true),
        Next::Ask(Question::Debug) => diagnosed(),
        Next::Publish => published("h"),
    }
}

/// Answers until the turn ends. Three unusable answers in a row are a failure, as in the engine.
fn walk(dialogue: &mut Dialogue, mut answer: impl FnMut(Next, &Dialogue) -> Option<Input>) {
    let (mut steps, mut unusable) = (0, 0);
    loop {
        let asked = next(&dialogue.stored);
        if asked == Next::Wait {
            break;
        }
        steps += 1;
        assert!(steps <= 3 * MOST_STEPS, "the turn does not end: {:?}", dialogue.stages());
        match answer(asked, dialogue) {
            None => {
                dialogue.fault([ErrorCode::Timeout, ErrorCode::ModelUnavailable, ErrorCode::Cancelled][steps % 3]);
            }
            Some(input) => match advance(&mut dialogue.stored, input, BTreeMap::new(), NOW) {
                Ok(()) => {
                    unusable = 0;
                    dialogue.keep();
                }
                Err(_) if unusable == 2 => {
                    dialogue.fault(ErrorCode::InvalidAnswer);
                }
                Err(_) => unusable += 1,
            },
        }
    }
    assert_well_told(dialogue);
}

fn assert_well_told(dialogue: &Dialogue) {
    let events = &dialogue.events;
    let finals: Vec<_> = events.iter().map(|event| event.is_final).collect();
    assert!(finals.last() == Some(&true) && finals.iter().filter(|last| **last).count() == 1, "one last event");
    assert!((0..).zip(events).all(|(place, event)| event.seq == place), "the numbers have no gap");
    let mut told = None;
    for event in events {
        let Body::Status { content } = &event.body else { continue };
        assert!(told.is_none_or(|told| told == content.previous_stage), "each status follows from the last one");
        told = Some(content.new_stage);
    }
    assert!(matches!(events[0].body, Body::Status { .. }), "the first event tells the stage");
    assert_eq!(told, Some(dialogue.stored.state.stage));
    assert!(!dialogue.stored.in_turn());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_stage_hangs_or_is_a_dead_end(
        turns in prop::collection::vec((message(), prop::collection::vec(chance(), 40)), 1..12),
        manual in any::<bool>(),
    ) {
        let mut dialogue = Dialogue::new(new());
        if manual {
            dialogue.stored.publish = types::authoring::Publish::Manual;
        }
        for (message, chances) in turns {
            dialogue.say(message);
            let mut chances = chances.iter().cycle();
            walk(&mut dialogue, |asked, _| {
                let chance = chances.next().unwrap();
                let odd = chance.pick.index(8) == 0 && matches!(asked, Next::Ask(Question::Clarification));
                let unusable = || Input::Clarified(Clarification::default());
                (!chance.fails).then(|| if odd { unusable() } else { anything(asked, chance) })
            });
        }
        for _ in 0..3 {
            if dialogue.stored.state.stage == Stage::Completed {
                break;
            }
            dialogue.say("1");
            walk(&mut dialogue, |asked, dialogue| Some(cooperative(asked, dialogue)));
        }
        prop_assert_eq!(dialogue.stored.state.stage, Stage::Completed);
    }
}
