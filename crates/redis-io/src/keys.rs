//! Key names: `<prefix>:j1:{<branch key>}:<part>`. Frozen; a change of the prefix means a fresh replay.

use upriver_model::{AttemptId, BranchKey, TargetScope};

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
