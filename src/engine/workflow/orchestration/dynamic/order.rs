//! Which node came before which, for a run that is repeated from a node on.

use definitions::workflow::definition::Dynamic;
use definitions::workflow::node::Node;

/// A node in a path, such as `triage[2]`: its id, and how often it had been activated by then, if that is said.
pub type Place<'p> = (&'p str, Option<u32>);

/// Why nothing of `dynamic` begins at a place, if so; `deeper` when the path goes on from there.
pub fn check(dynamic: &Dynamic, (id, nth): Place<'_>, deeper: bool) -> Result<(), String> {
    let Some(node) = Node::of(id) else {
        let known: Vec<_> = Node::ALL.iter().map(|node| node.id()).collect();
        return Err(format!("a dynamic workflow has no node `{id}`; it has: {}", known.join(", ")));
    };
    let again = matches!(node, Node::Triage | Node::Clarify | Node::Orchestrator);
    match nth {
        _ if deeper => Err(format!("what is within `{id}` is repeated with it: name the node alone")),
        Some(nth) if !again || nth == 0 || nth > dynamic.max_iterations => {
            Err(format!("the node `{id}` is not activated {nth} times"))
        }
        _ => Ok(()),
    }
}

/// True when the node at `place` has ended before the one at `from` began. `clarified` is how often the user was asked.
pub fn comes_before(place: Place<'_>, from: Place<'_>, clarified: u32) -> bool {
    let position = |(id, nth): Place<'_>| Node::of(id).map(|node| position(node, nth.unwrap_or(1), clarified));
    position(place).zip(position(from)).is_some_and(|(place, from)| place < from)
}

/// Where in a run an activation has its place: it plans until it need not ask any more, carries out, judges, and tries once
/// again.
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
