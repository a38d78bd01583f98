//! Single messages of the measuring end, one after the other.

use std::time::{Duration, Instant};

use pumice_transport::types::WorkCompletion;

use super::RoundLimit;
use super::receiver::reply_tag;
use crate::endpoint::{BufferSelection, Endpoint, Post};
use crate::error::{PerfError, Result};
use crate::pattern::Tag;
use crate::plan::{Operation, Plan, Service};
use crate::statistics::LatencySamples;

/// Number of empty polls between checks of the clock.
const POLLS_PER_LOOK: u32 = 1024;
/// Time after which a missing answer counts as lost.
const LOST_AFTER: Duration = Duration::from_millis(500);
const LOST_AFTER_RELIABLE: Duration = Duration::from_secs(120);
const EVENT_WAIT: Duration = Duration::from_millis(20);
/// Number of replies per completion of a send.
const SIGNAL_EVERY: u64 = 16;

/// Sends messages until the limit, and stores their times in `times`: of a SEND until the peer's answer, of
/// others until the completion. Returns their number.
pub(crate) fn measure(
    end: &mut Endpoint,
    plan: &Plan,
    limit: RoundLimit,
    times: &mut LatencySamples,
) -> Result<LatencyTotals> {
    end.drain()?;
    times.clear();
    let start = Instant::now();
    let mut last = start;
    let mut exchanged = LatencyTotals::default();
    let is_within_limit = |last: Instant, messages: u64| match limit {
        RoundLimit::Time(duration) => last - start < duration,
        RoundLimit::Messages(count) => messages < count,
    };
    while is_within_limit(last, exchanged.messages) {
        let answered = one(end, plan, exchanged.messages, None)?;
        let now = Instant::now();
        exchanged.messages += 1;
        if answered {
            times.push(now - last);
        } else {
            exchanged.lost += 1;
        }
        last = now;
    }
    exchanged.seconds = (last - start).as_secs_f64();
    Ok(exchanged)
}

/// Messages that a latency round exchanged.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LatencyTotals {
    pub(crate) messages: u64,
    pub(crate) lost: u64,
    pub(crate) seconds: f64,
}

/// Makes `count` ping-pongs whose messages have tags from `first` on, and checks their answers.
pub(crate) fn check_answers(end: &mut Endpoint, plan: &Plan, first: Tag, count: u64) -> Result<u64> {
    end.drain()?;
    let mut checked = 0;
    for number in 0..count {
        end.fill_send(0, first + number)?;
        checked += u64::from(one(end, plan, number, Some(first + number))?);
    }
    Ok(checked)
}

fn one(end: &mut Endpoint, plan: &Plan, number: u64, tag: Option<Tag>) -> Result<bool> {
    let signal = !plan.ping_pong() || number % SIGNAL_EVERY == SIGNAL_EVERY - 1;
    // A checked message carries its number in the immediate data.
    let imm_every = u64::from(tag.is_some() && plan.ping_pong());
    let buffers =
        if plan.operation == Operation::Atomic { BufferSelection::OfQueuePair } else { BufferSelection::All };
    let (first, retires) = (number, signal.then_some(1));
    end.post(&Post { qp: 0, first, count: 1, buffers, imm_every, retires })?;
    let patience = if plan.service == Service::Rc { LOST_AFTER_RELIABLE } else { LOST_AFTER };
    let start = Instant::now();
    let mut empty = 0_u32;
    let mut done = [WorkCompletion::default(); 1];
    loop {
        let count = match (plan.ping_pong(), plan.events) {
            (true, false) => end.poll_receives(&mut done)?,
            (true, true) => end.wait_receives(&mut done, EVENT_WAIT)?,
            (false, false) => end.poll_sends(&mut done)?,
            (false, true) => end.wait_sends(&mut done, EVENT_WAIT)?,
        };
        if count > 0 {
            break;
        }
        empty += 1;
        if (plan.events || empty.is_multiple_of(POLLS_PER_LOOK)) && start.elapsed() > patience {
            if plan.service == Service::Rc {
                let sentence = format!("no answer for {} s", patience.as_secs());
                return Err(PerfError::Lost(sentence));
            }
            return Ok(false);
        }
    }
    let [done] = &done;
    if plan.operation == Operation::Atomic {
        end.check_fetched(0, 1)?;
    }
    if plan.ping_pong() {
        if let Some(tag) = tag {
            end.check_receive(end.buffer_of(done), reply_tag(tag))?;
        }
        end.post_receive_again(done)?;
        if signal {
            end.discard_sends()?;
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::plan::MeasuredQuantity;
    use crate::plan::tests::plan;

    #[test]
    fn the_first_failure_is_shown_whatever_is_flushed_after_it() {
        let [high, low] = (std::process::id() as u16).to_be_bytes();
        let address = |last| IpAddr::from([127, 128 + high % 64, low, last]);
        let plan = Plan { quantity: MeasuredQuantity::Latency, ..plan(Operation::Send, Service::Rc) };
        let open = |last| Endpoint::open(&plan, address(last), None).expect("a device on loopback");
        let (mut left, mut right) = (open(1), open(2));
        left.connect(&right.info()).expect("fresh queue pairs");
        right.connect(&left.info()).expect("fresh queue pairs");
        drop(right);
        // A ping-pong polls for its answer first: it finds the receive requests, which are flushed.
        let mut times = LatencySamples::new();
        let long = RoundLimit::Time(Duration::from_secs(60));
        let failure = measure(&mut left, &plan, long, &mut times).expect_err("the peer has gone").to_string();
        assert!(failure.contains("failed with RETRY_EXC_ERR"), "{failure}");
    }
}
