//! Orders given to other processes of the same user.

use std::path::Path;
use std::time::Duration;

use pumice_events::recording::RecordAnswer;
use pumice_faults::live::LiveAnswer;
use pumice_ground::outside;

use super::asking::{Question, answers};
use super::orders::{MAX_BYTES, answer_of};
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
    let given = give(port, folder, patience, order, (is_asked, &LiveAnswer::decode))?;
    Ok(given.into_iter().map(|(sharer, answer)| Obeyed { sharer, answer }).collect())
}

/// What one process answered to an order to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The process.
    pub sharer: Sharer,
    /// Its answer. None: it did not answer in time.
    pub answer: Option<RecordAnswer>,
}

/// As [`order`], where `order` is a [`RecordOrder`](pumice_events::recording::RecordOrder), encoded.
///
/// # Errors
/// The same.
pub fn record(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
    order: &[u8],
    is_asked: &dyn Fn(&Sharer) -> bool,
) -> Result<Vec<Recording>, ShareError> {
    let given = give(port, folder, patience, order, (is_asked, &RecordAnswer::decode))?;
    Ok(given.into_iter().map(|(sharer, answer)| Recording { sharer, answer }).collect())
}

/// Whom an order is given to, and how the answer is read.
type Whom<'a, A> = (&'a dyn Fn(&Sharer) -> bool, &'a dyn Fn(&[u8]) -> Option<A>);

/// Gives an order; each process is known by what it answered.
fn give<A>(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
    order: &[u8],
    (is_asked, read): Whom<'_, A>,
) -> Result<Vec<(Sharer, Option<A>)>, ShareError> {
    let now = outside::since_1970();
    let number = now.as_nanos() as u64;
    let question = Question {
        is_asked,
        ask: &|asker, registry, member| {
            // It is asked again if this is lost.
            let _ = asker.order(registry, member, number, order);
        },
        read: &|bytes| {
            let (member, of_order, answer) = answer_of(bytes)?;
            let answer = (of_order == number).then_some(answer)?;
            Some((member, read(answer)?))
        },
        max_bytes: MAX_BYTES,
    };
    answers(port, folder, patience, &question)
}
