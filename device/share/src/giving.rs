//! Orders given to other processes of the same user.

use std::path::Path;
use std::time::Duration;

use pumice_faults::live::LiveAnswer;
use pumice_ground::outside;

use super::asking::{Question, answers};
use super::orders::{MAX_BYTES, decode};
use super::{ShareError, Sharer};

/// What one process answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obeyed {
    /// The process.
    pub sharer: Sharer,
    /// Its answer. None: it did not answer in time, because it is stopped, or exits, or is of a version that
    /// knows no orders.
    pub answer: Option<LiveAnswer>,
}

/// Gives an order to the processes that share a UDP port of this network namespace and that `is_asked`
/// chooses. `order` is a [`LiveOrder`](pumice_faults::live::LiveOrder), encoded. `folder` is that of
/// [`ShareConfig`](super::ShareConfig). Takes as long as the slowest, and at most `patience` for each of this
/// user's folders.
///
/// # Errors
/// The registry cannot be opened or read; no socket is to be had.
pub fn order(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
    order: &[u8],
    is_asked: &dyn Fn(&Sharer) -> bool,
) -> Result<Vec<Obeyed>, ShareError> {
    let now = outside::since_1970();
    let number = now.as_nanos() as u64;
    let question = Question {
        is_asked,
        ask: &|asker, registry, member| {
            // It is asked again if this is lost.
            let _ = asker.order(registry, member, number, order);
        },
        read: &|bytes| decode(bytes, number),
        max_bytes: MAX_BYTES,
    };
    let all = answers(port, folder, patience, &question)?;
    Ok(all.into_iter().map(|(sharer, answer)| Obeyed { sharer, answer }).collect())
}
