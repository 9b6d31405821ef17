//! Order of the nodes of a dynamic workflow, for a restart from a node.

use definitions::workflow::definition::DynamicDefinition;
use definitions::workflow::node::Node;

/// A node in a path, such as `triage[2]`: its id, and the number of its activation if the path has one.
pub(crate) type Place<'p> = (&'p str, Option<u32>);

/// Checks that a run of `dynamic` can restart from a place. `deeper` is true if the path continues below the node.
/// The error is for people.
pub fn check(dynamic: &DynamicDefinition, (id, nth): Place<'_>, deeper: bool) -> Result<(), String> {
    let Some(node) = Node::from_id(id) else {
        let known: Vec<_> = Node::ALL.iter().map(|node| node.id()).collect();
        return Err(format!("a dynamic workflow has no node `{id}`; it has: {}", known.join(", ")));
    };
    let again = matches!(node, Node::Triage | Node::Clarify | Node::Orchestrator);
    match nth {
        _ if deeper => Err(format!("a run cannot restart from within the node `{id}`; name the node alone")),
        Some(nth) if !again || nth == 0 || nth > dynamic.max_iterations => {
            Err(format!("the node `{id}` has no activation {nth}"))
        }
        _ => Ok(()),
    }
}

/// True if the node at `place` ends before the node at `from` starts. `clarified` is the number of questions to the
/// user.
pub(crate) fn comes_before(place: Place<'_>, from: Place<'_>, clarified: u32) -> bool {
    let position = |(id, nth): Place<'_>| Node::from_id(id).map(|node| position(node, nth.unwrap_or(1), clarified));
    position(place).zip(position(from)).is_some_and(|(place, from)| place < from)
}

/// Position of an activation in the longest possible run: triage and questions to the user alternate, then the plan
/// is executed, reviewed, and replaced once.
fn position(node: Node, nth: u32, clarified: u32) -> u32 {
    let planned = 2 + 2 * clarified;
    match node {
        Node::StoreQuery => 0,
        Node::Triage if nth > clarified + 1 => planned + 2,
        Node::Triage => 2 * nth - 1,
        Node::Clarify => 2 * nth,
        Node::Reject => planned,
        Node::Orchestrator => planned + 3 * (nth - 1),
        Node::Review => planned + 1,
        Node::Summary => planned + 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_in_the_order_of_the_longest_way() {
        let first = [("store_query", None), ("triage", None), ("orchestrator", None), ("review_executor", None)];
        let then = [("triage", Some(2)), ("orchestrator", Some(2)), ("streaming_summary", None)];
        let way: Vec<Place<'_>> = first.into_iter().chain(then).collect();
        let asked = [("store_query", None), ("triage", Some(1)), ("clarify_executor", None), ("triage", Some(2))];
        let answered = [("orchestrator", None), ("review_executor", None), ("triage", Some(3))];
        let asked: Vec<Place<'_>> = asked.into_iter().chain(answered).chain(then[1..].iter().copied()).collect();
        for (way, clarified) in [(way, 0), (asked, 1)] {
            for (at, place) in way.iter().enumerate() {
                for (from_at, from) in way.iter().enumerate() {
                    assert_eq!(comes_before(*place, *from, clarified), at < from_at, "{place:?} {from:?}");
                }
            }
        }
    }
}
