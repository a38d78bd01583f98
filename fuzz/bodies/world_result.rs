//! Any bytes as the result of a search: nothing panics, refusals are one sentence, and what is read fits
//! itself.

use super::result::SearchResult;

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    match SearchResult::parse(bytes) {
        Ok(result) => {
            assert!(result.failed <= result.runs && result.runs <= result.wanted());
            let again = SearchResult::parse(result.json().as_bytes());
            assert!(again.is_ok_and(|again| again.is_good() == result.is_good()));
            1 + result.failures.len()
        }
        Err(sentence) => {
            assert!(!sentence.is_empty() && !sentence.contains('\n'), "{sentence:?}");
            0
        }
    }
}
