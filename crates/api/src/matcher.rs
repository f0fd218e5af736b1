//! Does a [`NamespaceMatcher`] admit a namespace?
//!
//! In: the matcher, a name, and the namespace's labels if they were read. Out: an [`Admission`]. Names come first, so
//! a name answer needs no Namespace read. Unsure is never yes and never no: it is `NeedsLabels` or `Invalid`. An
//! absent matcher means "no policy", which is the caller's case to decide.

use std::collections::BTreeMap;

use crate::shared::{LabelSelector, LabelSelectorRequirement, NamespaceMatcher};

/// Labels of a Namespace object.
pub type Labels = BTreeMap<String, String>;

/// The answer of a matcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Yes.
    Admitted,
    /// No.
    Denied,
    /// It depends on labels that were not given.
    NeedsLabels,
    /// The matcher cannot be evaluated: a configuration error.
    Invalid(MatcherError),
}

/// Why a matcher cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatcherError {
    /// A stored name that the schema would refuse today.
    #[error("{name:?} is no namespace name: list exact names, or use a selector")]
    Name {
        /// The name.
        name: Box<str>,
    },
    /// A label key that Kubernetes refuses.
    #[error("{key:?} is no label key")]
    Key {
        /// The key.
        key: Box<str>,
    },
    /// A label value that Kubernetes refuses.
    #[error("{value:?} is no value for label {key}")]
    Value {
        /// The key.
        key: Box<str>,
        /// The value.
        value: Box<str>,
    },
    /// An operator that Kubernetes does not know.
    #[error("operator {operator:?} on label {key} is unknown: use In, NotIn, Exists or DoesNotExist")]
    Operator {
        /// The key.
        key: Box<str>,
        /// The operator.
        operator: Box<str>,
    },
    /// `In` and `NotIn` without values.
    #[error("operator {operator} on label {key} needs values")]
    NoValues {
        /// The key.
        key: Box<str>,
        /// The operator.
        operator: Box<str>,
    },
    /// `Exists` and `DoesNotExist` with values.
    #[error("operator {operator} on label {key} takes no values")]
    SurplusValues {
        /// The key.
        key: Box<str>,
        /// The operator.
        operator: Box<str>,
    },
}

impl NamespaceMatcher {
    /// Whether `namespace` is admitted. `labels` are those of its Namespace object; a Namespace that does not exist has
    /// none, which is an empty map and not `None`.
    #[must_use]
    pub fn admits(&self, namespace: &str, labels: Option<&Labels>) -> Admission {
        // A valid name that is listed stands by itself, whatever else is wrong.
        if is_namespace_name(namespace) && self.names.iter().any(|name| name == namespace) {
            return Admission::Admitted;
        }
        if let Err(error) = self.check() {
            return Admission::Invalid(error);
        }
        match (&self.selector, labels) {
            (None, _) => Admission::Denied,
            (Some(selector), _) if selector.is_empty() => Admission::Admitted,
            (Some(_), None) => Admission::NeedsLabels,
            (Some(selector), Some(labels)) => match selector.matches(labels) {
                Ok(true) => Admission::Admitted,
                Ok(false) => Admission::Denied,
                Err(error) => Admission::Invalid(error),
            },
        }
    }

    /// True if it admits nothing, whatever the namespace.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.selector.is_none()
    }

    /// True if finding every admitted namespace takes a list of Namespaces.
    #[must_use]
    pub fn needs_listing(&self) -> bool {
        self.selector.is_some()
    }

    /// Whether it can be evaluated. Objects stored before a schema rule existed are checked here.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), MatcherError> {
        if let Some(bad) = self.names.iter().find(|name| !is_namespace_name(name)) {
            return Err(MatcherError::Name { name: bad.as_str().into() });
        }
        self.selector.as_ref().map_or(Ok(()), |selector| selector.matches(&Labels::new()).map(|_| ()))
    }
}

impl LabelSelector {
    /// True if it has no requirement, so that it matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Whether all requirements hold.
    ///
    /// # Errors
    /// If any requirement is malformed, even if another one fails already.
    pub fn matches(&self, labels: &Labels) -> Result<bool, MatcherError> {
        let mut all = true;
        for (key, value) in &self.match_labels {
            check_key(key)?;
            check_value(key, value)?;
            all &= labels.get(key) == Some(value);
        }
        for requirement in &self.match_expressions {
            all &= requirement.matches(labels)?;
        }
        Ok(all)
    }
}

impl LabelSelectorRequirement {
    fn matches(&self, labels: &Labels) -> Result<bool, MatcherError> {
        check_key(&self.key)?;
        let (key, operator) = (|| self.key.as_str().into(), || self.operator.as_str().into());
        match self.operator.as_str() {
            "In" | "NotIn" if self.values.is_empty() => {
                return Err(MatcherError::NoValues { key: key(), operator: operator() });
            }
            "Exists" | "DoesNotExist" if !self.values.is_empty() => {
                return Err(MatcherError::SurplusValues { key: key(), operator: operator() });
            }
            _ => {}
        }
        for value in &self.values {
            check_value(&self.key, value)?;
        }
        let found = labels.get(&self.key);
        let listed = found.is_some_and(|value| self.values.contains(value));
        match self.operator.as_str() {
            "In" => Ok(listed),
            // An absent label is in no list.
            "NotIn" => Ok(!listed),
            "Exists" => Ok(found.is_some()),
            "DoesNotExist" => Ok(found.is_none()),
            _ => Err(MatcherError::Operator { key: key(), operator: operator() }),
        }
    }
}

fn is_namespace_name(name: &str) -> bool {
    name.len() <= 63 && is_dns_label(name)
}

fn is_dns_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Letters, digits, `-`, `_` and `.`, at most 63, with a letter or digit at both ends.
fn is_label_word(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= 63
        && text.bytes().all(inner)
        && ends.iter().all(|c| c.is_some_and(|c| c.is_ascii_alphanumeric()))
}

fn check_key(key: &str) -> Result<(), MatcherError> {
    let valid = match key.split_once('/') {
        Some((prefix, name)) => {
            prefix.len() <= 253 && prefix.split('.').all(is_dns_label) && is_label_word(name)
        }
        None => is_label_word(key),
    };
    if valid { Ok(()) } else { Err(MatcherError::Key { key: key.into() }) }
}

fn check_value(key: &str, value: &str) -> Result<(), MatcherError> {
    if value.is_empty() || is_label_word(value) {
        Ok(())
    } else {
        Err(MatcherError::Value { key: key.into(), value: value.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn matcher(value: Value) -> NamespaceMatcher {
        serde_json::from_value(value).expect("a matcher")
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_name_answers_without_labels() {
        let both = matcher(json!({"names": ["a"], "selector": {"matchLabels": {"x": "y"}}}));
        assert_eq!(both.admits("a", None), Admission::Admitted);
        assert_eq!(both.admits("b", None), Admission::NeedsLabels);
        assert_eq!(both.admits("b", Some(&labels(&[("x", "y")]))), Admission::Admitted);
        assert_eq!(both.admits("b", Some(&labels(&[("x", "z")]))), Admission::Denied);
        assert_eq!(matcher(json!({"names": ["a"]})).admits("b", None), Admission::Denied);
    }

    #[test]
    fn an_empty_matcher_admits_nothing_and_an_empty_selector_everything() {
        let nothing = matcher(json!({}));
        assert_eq!(nothing.admits("a", Some(&Labels::new())), Admission::Denied);
        assert!(nothing.is_empty() && !nothing.needs_listing());
        let everything = matcher(json!({"selector": {}}));
        assert_eq!(everything.admits("a", None), Admission::Admitted);
        assert!(!everything.is_empty() && everything.needs_listing());
    }

    #[test]
    fn expressions_follow_kubernetes() {
        let vectors = [
            ("In", vec!["y"], vec![("x", "y")], true),
            ("In", vec!["y"], vec![("x", "z")], false),
            ("In", vec!["y"], vec![], false),
            ("In", vec!["", "y"], vec![("x", "")], true),
            ("NotIn", vec!["y"], vec![("x", "y")], false),
            ("NotIn", vec!["y"], vec![("x", "z")], true),
            ("NotIn", vec!["y"], vec![], true),
            ("Exists", vec![], vec![("x", "")], true),
            ("Exists", vec![], vec![], false),
            ("DoesNotExist", vec![], vec![("x", "")], false),
            ("DoesNotExist", vec![], vec![], true),
        ];
        for (operator, values, given, expected) in vectors {
            let expression = json!({"key": "x", "operator": operator, "values": values});
            let matcher = matcher(json!({"selector": {"matchExpressions": [expression]}}));
            let expected = if expected { Admission::Admitted } else { Admission::Denied };
            assert_eq!(
                matcher.admits("n", Some(&labels(&given))),
                expected,
                "{operator} {values:?} on {given:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_evaluated_is_an_error_and_never_an_answer() {
        let selector = |expression: Value| json!({"selector": {"matchExpressions": [expression]}});
        let invalid = [
            json!({"names": ["*"]}),
            json!({"names": ["team-*", "b"], "selector": {}}),
            json!({"selector": {"matchLabels": {"a/b/c": "d"}}}),
            json!({"selector": {"matchLabels": {"-a": "d"}}}),
            json!({"selector": {"matchLabels": {"a": "b c"}}}),
            selector(json!({"key": "x", "operator": "Equals", "values": ["y"]})),
            selector(json!({"key": "x", "operator": "in", "values": ["y"]})),
            selector(json!({"key": "x", "operator": "In"})),
            selector(json!({"key": "x", "operator": "NotIn", "values": []})),
            selector(json!({"key": "x", "operator": "Exists", "values": ["y"]})),
            selector(json!({"key": "", "operator": "Exists"})),
            selector(json!({"key": "x", "operator": "In", "values": ["?"]})),
        ];
        for value in invalid {
            for given in [None, Some(&Labels::new())] {
                let answer = matcher(value.clone()).admits("n", given);
                assert!(matches!(answer, Admission::Invalid(_)), "{value} gave {answer:?}");
            }
        }
        assert_eq!(matcher(json!({"names": ["*", "n"]})).admits("n", None), Admission::Admitted);
    }

    #[test]
    fn every_part_of_a_selector_has_to_match() {
        let matcher = matcher(json!({"selector": {
            "matchLabels": {"example.net/tier": "one"},
            "matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["test"]}],
        }}));
        let admits = |pairs: &[(&str, &str)]| matcher.admits("n", Some(&labels(pairs)));
        assert_eq!(admits(&[("example.net/tier", "one"), ("env", "live")]), Admission::Admitted);
        assert_eq!(admits(&[("example.net/tier", "one"), ("env", "test")]), Admission::Denied);
        assert_eq!(admits(&[("env", "live")]), Admission::Denied);
    }
}
