//! Any bytes as a device profile: nothing panics, and a refusal is one sentence.

use pumice_device::profile::Profile;

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let text = String::from_utf8_lossy(bytes);
    match Profile::parse(&text) {
        Ok(_) => 1,
        Err(sentence) => {
            assert!(!sentence.is_empty() && !sentence.contains('\n'), "{sentence:?}");
            0
        }
    }
}
