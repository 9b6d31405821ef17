//! The order of the nodes of one level: which can run together, and which run before which.

use super::GraphLevel;
use std::collections::BTreeSet;

impl GraphLevel {
    /// The ids of the nodes in groups: a group can run together once the groups before it have ended. Nodes of a cycle,
    /// which the validator refuses, are in no group.
    pub fn layers(&self) -> Vec<Vec<&str>> {
        let mut left: BTreeSet<usize> = (0..self.nodes.len()).collect();
        let mut layers = Vec::new();
        while !left.is_empty() {
            let waits = |at: &usize| self.edges.iter().any(|edge| edge.target == *at && left.contains(&edge.source));
            let ready: Vec<usize> = left.iter().copied().filter(|at| !waits(at)).collect();
            if ready.is_empty() {
                break;
            }
            layers.push(ready.iter().map(|at| self.nodes[*at].id()).collect());
            left.retain(|at| !ready.contains(at));
        }
        layers
    }

    /// True if a way leads from `earlier` to `later`. A node does not lead to itself.
    pub fn leads(&self, earlier: &str, later: &str) -> bool {
        let (Some(from), Some(to)) = (self.place(earlier), self.place(later)) else { return false };
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            let targets = self.edges.iter().filter(|edge| edge.source == at).map(|edge| edge.target);
            open.extend(targets.filter(|target| reached.insert(*target)));
        }
        reached.contains(&to)
    }
}
