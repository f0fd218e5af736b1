//! Key names: `<prefix>:j1:{<branch key>}:<part>`. Frozen; a change of the prefix means a fresh replay.

use upriver_model::{AttemptId, BranchKey, TargetScope};

/// Keys that nothing of ours is kept in.
pub(crate) fn scratch(prefix: &str) -> [String; 4] {
    // Two replicas may start at the same time.
    let place = format!("{prefix}:check:{{{:016x}}}", rand::random::<u64>());
    ["a", "b", "c", "d"].map(|name| format!("{place}:{name}"))
}

/// Names of one branch's keys.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    root: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str, branch: &BranchKey) -> Self {
        Self { root: format!("{prefix}:j1:{{{branch}}}") }
    }

    fn part(&self, name: &str) -> String {
        format!("{}:{name}", self.root)
    }

    pub(crate) fn meta(&self) -> String {
        self.part("meta")
    }

    pub(crate) fn log(&self) -> String {
        self.part("log")
    }

    pub(crate) fn cursors(&self) -> String {
        self.part("cur")
    }

    pub(crate) fn settled(&self) -> String {
        self.part("settled")
    }

    pub(crate) fn refused(&self) -> String {
        self.part("refused")
    }

    pub(crate) fn notes(&self) -> String {
        self.part("notes")
    }

    pub(crate) fn attempts(&self) -> String {
        self.part("att")
    }

    pub(crate) fn attempt(&self, id: AttemptId) -> String {
        self.part(&format!("att:{id}"))
    }

    pub(crate) fn inventory(&self, scope: &TargetScope) -> String {
        self.part(&format!("inv:{}:{}|{}", scope.target, scope.gvr.group_resource(), scope.scope))
    }

    pub(crate) fn staged_inventory(&self, scope: &TargetScope) -> String {
        self.part(&format!("new:{}:{}|{}", scope.target, scope.gvr.group_resource(), scope.scope))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use upriver_model::{Gvr, Scope, TargetUid};

    use super::*;

    /// What Redis Cluster hashes: between the first `{` and the first `}` after it, if anything is there.
    fn hash_tag(key: &str) -> &str {
        let tagged = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        tagged.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key)
    }

    fn all(keys: &Keys, scope: &TargetScope) -> Vec<String> {
        vec![
            keys.meta(),
            keys.log(),
            keys.cursors(),
            keys.settled(),
            keys.refused(),
            keys.notes(),
            keys.attempts(),
            keys.attempt(AttemptId { epoch: 1, n: 2 }),
            keys.inventory(scope),
            keys.staged_inventory(scope),
        ]
    }

    fn scope(target: &str, group: &str, namespace: &str) -> TargetScope {
        TargetScope {
            target: TargetUid::new(target),
            gvr: Gvr::new(group, "v1", "things"),
            scope: Scope::Namespace(namespace.into()),
        }
    }

    #[test]
    fn all_keys_of_a_branch_share_one_slot_and_differ() {
        let branch = BranchKey::new("0123456789abcdef0123456789abcdef");
        let keys = Keys::new("team:upriver", &branch);
        // No name of Kubernetes holds a brace, but a scope comes from elsewhere, and it must not move a key.
        for scope in [scope("uid", "apps", "shop"), scope("{x}", "{y}", "{z}"), scope("}", "}{", "{}")] {
            let names = all(&keys, &scope);
            assert!(names.iter().all(|name| hash_tag(name) == branch.as_str()), "{names:?}");
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        }
        let plain = all(&keys, &scope("uid", "apps", "shop"));
        assert!(plain.iter().all(|name| name.matches(['{', '}']).count() == 2), "{plain:?}");
    }

    #[test]
    fn the_scratch_keys_share_a_slot_too() {
        let keys = scratch("upriver");
        assert!(keys.iter().all(|key| hash_tag(key) == hash_tag(&keys[0])), "{keys:?}");
        assert!(keys.iter().all(|key| key.starts_with("upriver:check:")), "{keys:?}");
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    }
}
