//! Could Secrets be encrypted with what a GitTarget says? In: its spec, and what its Secret with age keys holds. Out: an
//! [`Encryption`]. Absent: encryption itself, which is not built yet; so a good configuration is answered with just that.

use std::collections::BTreeMap;

use upriver_api::age::{check_identity, check_recipient};
use upriver_api::git_target::{AgeRecipients, EncryptionProvider, EncryptionSpec};
use upriver_api::{GitTarget, Reason};

use super::compile::Refusal;

/// Whether Secrets could be encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Nobody asked.
    Off,
    /// The Secret with the keys has not been read yet.
    Unread,
    /// The configuration is good, and this release does nothing with it.
    NotBuilt,
    /// The configuration cannot work.
    Refused(Refusal),
}

/// What a Secret with age keys holds. No key is in here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgeKeys {
    /// Name of the Secret that was read.
    pub secret: String,
    /// What came out.
    pub found: FoundKeys,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundKeys {
    /// No such Secret.
    NoSecret,
    /// So many private keys.
    Keys(usize),
    /// An entry that is none.
    Malformed {
        /// Its key in the Secret.
        entry: String,
        /// What is wrong with it.
        why: String,
    },
}

/// The Secret that has to be read before [`check`] can answer.
pub(super) fn secret_of(target: &GitTarget) -> Option<&str> {
    let (spec, recipients) = enabled(target)?;
    let recipients = recipients?;
    recipients.extract_from_secret.then(|| secret_name(spec)).flatten()
}

/// What the data of a Secret holds.
pub(super) fn keys_in(data: &BTreeMap<String, Vec<u8>>) -> FoundKeys {
    let mut keys = 0;
    for (entry, value) in data.iter().filter(|(entry, _)| entry.ends_with(".agekey")) {
        match check_identity(value) {
            Ok(()) => keys += 1,
            Err(error) => return FoundKeys::Malformed { entry: entry.clone(), why: error.to_string() },
        }
    }
    FoundKeys::Keys(keys)
}

/// The verdict on a target.
pub(super) fn check(target: &GitTarget, keys: Option<&AgeKeys>) -> Encryption {
    let Some((spec, recipients)) = enabled(target) else { return Encryption::Off };
    match usable(spec, recipients, keys, &target.metadata.namespace.clone().unwrap_or_default()) {
        Ok(true) => Encryption::NotBuilt,
        Ok(false) => Encryption::Unread,
        Err(refusal) => Encryption::Refused(refusal),
    }
}

fn enabled(target: &GitTarget) -> Option<(&EncryptionSpec, Option<&AgeRecipients>)> {
    let spec = target.spec.encryption.as_ref()?;
    let age = spec.age.as_ref().filter(|age| age.enabled)?;
    Some((spec, age.recipients.as_ref()))
}

fn secret_name(spec: &EncryptionSpec) -> Option<&str> {
    spec.secret_ref.as_ref().map(|reference| reference.name.as_str()).filter(|name| !name.trim().is_empty())
}

/// True if it is, false if that is not known yet.
fn usable(
    spec: &EncryptionSpec,
    recipients: Option<&AgeRecipients>,
    keys: Option<&AgeKeys>,
    namespace: &str,
) -> Result<bool, Refusal> {
    let refuse = |message: String| Err(Refusal::new(Reason::InvalidConfig, message));
    if spec.provider != EncryptionProvider::Sops {
        return refuse(format!(
            "spec.encryption.provider {:?} is not known: use sops",
            spec.provider.as_str()
        ));
    }
    let at = "spec.encryption.age.recipients";
    let none = AgeRecipients::default();
    let recipients = recipients.unwrap_or(&none);
    if recipients.generate_when_missing && !recipients.extract_from_secret {
        return refuse(format!(
            "{at}.generateWhenMissing needs {at}.extractFromSecret: set both, or neither"
        ));
    }
    let secret = secret_name(spec);
    if recipients.extract_from_secret && secret.is_none() {
        return refuse(format!(
            "{at}.extractFromSecret needs spec.encryption.secretRef: name the Secret with age keys"
        ));
    };
    for (index, key) in recipients.public_keys.iter().enumerate() {
        if let Err(error) = check_recipient(key) {
            return refuse(format!("{at}.publicKeys[{index}]: {error}"));
        }
    }
    if recipients.extract_from_secret {
        let secret = secret.unwrap_or_default();
        return from_secret(recipients, keys.filter(|keys| keys.secret == secret), namespace, secret);
    }
    if recipients.public_keys.is_empty() {
        return refuse(format!(
            "age is enabled for nobody: list a public key in {at}.publicKeys, or set extractFromSecret"
        ));
    }
    Ok(true)
}

fn from_secret(
    recipients: &AgeRecipients,
    keys: Option<&AgeKeys>,
    namespace: &str,
    secret: &str,
) -> Result<bool, Refusal> {
    match keys.map(|keys| &keys.found) {
        None => Ok(false),
        Some(FoundKeys::NoSecret) if !recipients.generate_when_missing => {
            let message = format!(
                "Secret {namespace}/{secret} with age keys does not exist: create it, or set generateWhenMissing"
            );
            Err(Refusal::new(Reason::MissingSecret, message))
        }
        Some(FoundKeys::Malformed { entry, why }) => {
            let message = format!("Secret {namespace}/{secret}, entry {entry}: {why}");
            Err(Refusal::new(Reason::InvalidConfig, message))
        }
        Some(FoundKeys::Keys(0))
            if recipients.public_keys.is_empty() && !recipients.generate_when_missing =>
        {
            let message = format!(
                "Secret {namespace}/{secret} has no entry that ends in .agekey: add one, or set generateWhenMissing"
            );
            Err(Refusal::new(Reason::InvalidConfig, message))
        }
        Some(FoundKeys::NoSecret | FoundKeys::Keys(_)) => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const RECIPIENT: &str = "age1qqqsyqcyq5rqwzqfpg9scrgwpugpzysnzs23v9ccrydpk8qarc0savhh7m";
    const IDENTITY: &str = "AGE-SECRET-KEY-1QQQSYQCYQ5RQWZQFPG9SCRGWPUGPZYSNZS23V9CCRYDPK8QARC0SWRYDWG";

    fn target(encryption: &Value) -> GitTarget {
        serde_json::from_value(json!({
            "apiVersion": "configbutler.ai/v1alpha3", "kind": "GitTarget",
            "metadata": {"name": "t", "namespace": "n"},
            "spec": {"providerRef": {"name": "p"}, "branch": "main", "path": "a", "encryption": encryption}
        }))
        .expect("a target")
    }

    fn verdict(encryption: &Value, found: Option<FoundKeys>) -> String {
        let keys = found.map(|found| AgeKeys { secret: "s".to_owned(), found });
        match check(&target(encryption), keys.as_ref()) {
            Encryption::Off => "off".to_owned(),
            Encryption::Unread => "unread".to_owned(),
            Encryption::NotBuilt => "good".to_owned(),
            Encryption::Refused(refusal) => format!("{}: {}", refusal.reason, refusal.message),
        }
    }

    fn age(recipients: &Value) -> Value {
        json!({"secretRef": {"name": "s"}, "age": {"enabled": true, "recipients": recipients}})
    }

    #[test]
    fn every_contradiction_is_named_with_its_field() {
        let extract = || age(&json!({"extractFromSecret": true}));
        let generate = || age(&json!({"extractFromSecret": true, "generateWhenMissing": true}));
        let mut no_secret = generate();
        no_secret["secretRef"] = Value::Null;
        let damaged =
            || FoundKeys::Malformed { entry: "a.agekey".to_owned(), why: "its key is damaged".to_owned() };
        let cases = [
            (json!({}), None, "off"),
            (json!({"age": {"enabled": false}}), None, "off"),
            (json!({"age": {"enabled": true}}), None, "InvalidConfig: age is enabled for nobody"),
            (age(&json!({})), None, "InvalidConfig: age is enabled for nobody"),
            (age(&json!({"publicKeys": [RECIPIENT]})), None, "good"),
            (
                age(&json!({"publicKeys": [RECIPIENT, "age1x"]})),
                None,
                "InvalidConfig: spec.encryption.age.recipients.publicKeys[1]",
            ),
            (
                age(&json!({"generateWhenMissing": true})),
                None,
                "InvalidConfig: spec.encryption.age.recipients.generateWhenMissing",
            ),
            (
                no_secret,
                None,
                "InvalidConfig: spec.encryption.age.recipients.extractFromSecret needs spec.encryption.secretRef",
            ),
            (extract(), None, "unread"),
            (extract(), Some(FoundKeys::NoSecret), "MissingSecret: Secret n/s"),
            (extract(), Some(FoundKeys::Keys(0)), "InvalidConfig: Secret n/s has no entry"),
            (extract(), Some(FoundKeys::Keys(1)), "good"),
            (extract(), Some(damaged()), "InvalidConfig: Secret n/s, entry a.agekey"),
            (generate(), Some(FoundKeys::NoSecret), "good"),
            (generate(), Some(FoundKeys::Keys(0)), "good"),
            (
                json!({"provider": "vault", "age": {"enabled": true}}),
                None,
                "InvalidConfig: spec.encryption.provider",
            ),
        ];
        for (encryption, found, expected) in cases {
            let verdict = verdict(&encryption, found.clone());
            assert!(verdict.starts_with(expected), "{encryption} with {found:?}: {verdict}");
        }
    }

    #[test]
    fn only_agekey_entries_count_and_a_damaged_one_is_named() {
        let data = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
        };
        assert_eq!(keys_in(&data(&[("a.agekey", IDENTITY), ("note", "x")])), FoundKeys::Keys(1));
        assert_eq!(keys_in(&data(&[("a.key", IDENTITY)])), FoundKeys::Keys(0));
        let found = keys_in(&data(&[("a.agekey", IDENTITY), ("b.agekey", "AGE-SECRET-KEY-1PLANTED")]));
        let FoundKeys::Malformed { entry, why } = found else { panic!("{found:?}") };
        assert!(entry == "b.agekey" && !why.contains("PLANTED"), "{why}");
    }

    #[test]
    fn a_secret_is_read_only_where_keys_are_taken_from_it() {
        assert_eq!(secret_of(&target(&age(&json!({"extractFromSecret": true})))), Some("s"));
        assert_eq!(secret_of(&target(&age(&json!({"publicKeys": [RECIPIENT]})))), None);
        assert_eq!(secret_of(&target(&json!({"secretRef": {"name": "s"}}))), None);
    }
}
