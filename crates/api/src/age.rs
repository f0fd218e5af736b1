//! Is a text an age key? In: a recipient of a GitTarget, or an entry of the Secret with private keys. Out: yes, or why
//! not, never with the text of a private key in it. Absent: encryption.
//!
//! An X25519 key is Bech32 (BIP 173, with its checksum) over 32 bytes: `age1…` the public one, `AGE-SECRET-KEY-1…` the
//! private one.

const ALPHABET: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const PUBLIC: &str = "age";
const PRIVATE: &str = "age-secret-key-";
const KEY_BYTES: usize = 32;
const CHECKSUM: usize = 6;

/// Why a text is no age key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgeKeyError {
    /// Not an X25519 recipient.
    #[error("it is no age public key: expected age1 and 58 characters, as age-keygen prints it")]
    Recipient,
    /// A private key where a public one belongs.
    #[error(
        "it is a private key: take it out, make a new one, and list the public key that starts with age1"
    )]
    PrivateRecipient,
    /// Not text.
    #[error("it is no text: write one AGE-SECRET-KEY- line")]
    NoText,
    /// No key line.
    #[error("it has no AGE-SECRET-KEY- line: write exactly one")]
    NoKey,
    /// More than one key line.
    #[error(
        "it has several lines: write exactly one AGE-SECRET-KEY- line, the others into entries of their own"
    )]
    SeveralLines,
    /// A line that is no private key.
    #[error("its key is damaged: copy the AGE-SECRET-KEY- line again")]
    Damaged,
}

/// Checks an entry of `publicKeys`.
///
/// # Errors
/// If it is no `age1…` recipient.
pub fn check_recipient(text: &str) -> Result<(), AgeKeyError> {
    let text = text.trim();
    if text.to_ascii_lowercase().starts_with(PRIVATE) {
        return Err(AgeKeyError::PrivateRecipient);
    }
    if is_key(text, PUBLIC) && !text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Ok(())
    } else {
        Err(AgeKeyError::Recipient)
    }
}

/// Checks the value of a `*.agekey` entry: one private key; blank lines and lines that start with `#` are ignored.
///
/// # Errors
/// If there is not exactly one, or it is damaged.
pub fn check_identity(value: &[u8]) -> Result<(), AgeKeyError> {
    let text = std::str::from_utf8(value).map_err(|_| AgeKeyError::NoText)?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let line = lines.next().ok_or(AgeKeyError::NoKey)?;
    if lines.next().is_some() {
        return Err(AgeKeyError::SeveralLines);
    }
    if !line.bytes().any(|byte| byte.is_ascii_lowercase()) && is_key(line, PRIVATE) {
        Ok(())
    } else {
        Err(AgeKeyError::Damaged)
    }
}

/// Bech32 of 32 bytes under this prefix, in one letter case.
fn is_key(text: &str, prefix: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let Some(data) = lower.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('1')) else { return false };
    let values: Option<Vec<u8>> = data.bytes().map(value_of).collect();
    let Some(values) = values else { return false };
    let Some(payload) = values.len().checked_sub(CHECKSUM) else { return false };
    let bits = payload * 5;
    // What is left over by whole bytes has to be less than a character, and zero.
    let spare = bits % 8;
    let last = values.get(payload.wrapping_sub(1)).copied().unwrap_or_default();
    bits / 8 == KEY_BYTES && spare < 5 && last & ((1 << spare) - 1) == 0 && checksum(prefix, &values) == 1
}

fn value_of(byte: u8) -> Option<u8> {
    ALPHABET.iter().position(|letter| *letter == byte).and_then(|index| u8::try_from(index).ok())
}

/// The Bech32 polynomial over prefix and data; 1 if the checksum fits.
fn checksum(prefix: &str, values: &[u8]) -> u32 {
    const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    let high = prefix.bytes().map(|byte| byte >> 5);
    let low = prefix.bytes().map(|byte| byte & 31);
    let all = high.chain(std::iter::once(0)).chain(low).chain(values.iter().copied());
    all.fold(1_u32, |state, value| {
        let top = state >> 25;
        let shifted = ((state & 0x01ff_ffff) << 5) ^ u32::from(value);
        let taps = GENERATOR.iter().enumerate().filter(|(bit, _)| (top >> bit) & 1 == 1);
        taps.fold(shifted, |state, (_, tap)| state ^ tap)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made for these tests from fixed bytes; they protect nothing.
    const RECIPIENT: &str = "age1qqqsyqcyq5rqwzqfpg9scrgwpugpzysnzs23v9ccrydpk8qarc0savhh7m";
    const IDENTITY: &str = "AGE-SECRET-KEY-1QQQSYQCYQ5RQWZQFPG9SCRGWPUGPZYSNZS23V9CCRYDPK8QARC0SWRYDWG";

    #[test]
    fn keys_are_known_and_damaged_ones_are_not() {
        assert_eq!(check_recipient(RECIPIENT), Ok(()));
        assert_eq!(check_identity(IDENTITY.as_bytes()), Ok(()));
        for index in 0..RECIPIENT.len() {
            let mut text = RECIPIENT.as_bytes().to_vec();
            text[index] = if text[index] == b'q' { b'p' } else { b'q' };
            let text = String::from_utf8(text).expect("ASCII");
            assert_eq!(check_recipient(&text), Err(AgeKeyError::Recipient), "{text}");
        }
        for text in
            ["", "age1", "age1xyz", "ssh-ed25519 AAAA", &RECIPIENT.to_uppercase(), &format!("{RECIPIENT}q")]
        {
            assert_eq!(check_recipient(text), Err(AgeKeyError::Recipient), "{text}");
        }
        assert_eq!(check_recipient(IDENTITY), Err(AgeKeyError::PrivateRecipient));
    }

    #[test]
    fn an_entry_has_exactly_one_key_and_may_have_comments() {
        let file = format!("# created: today\n# public key: {RECIPIENT}\n\n{IDENTITY}\n");
        assert_eq!(check_identity(file.as_bytes()), Ok(()));
        assert_eq!(check_identity(b"# nothing\n\n"), Err(AgeKeyError::NoKey));
        assert_eq!(check_identity(&[0xff]), Err(AgeKeyError::NoText));
        let twice = format!("{IDENTITY}\n{IDENTITY}");
        assert_eq!(check_identity(twice.as_bytes()), Err(AgeKeyError::SeveralLines));
        for text in [RECIPIENT, &IDENTITY[..40], &IDENTITY.to_lowercase()] {
            assert_eq!(check_identity(text.as_bytes()), Err(AgeKeyError::Damaged));
        }
    }
}
