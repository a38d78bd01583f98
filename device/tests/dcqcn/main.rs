//! DCQCN from end to end, in virtual time: shares, queues, losses, and how many CNPs there are.
#![allow(clippy::print_stdout)]

#[path = "../kit/mod.rs"]
mod kit;
mod scenario;

use scenario::Scenario;

#[test]
fn explore() {
    for (n, rate, ms) in [(2, 10_000, 60), (3, 10_000, 60), (8, 10_000, 60)] {
        let outcome = Scenario::paper(n, rate, ms * 1_000_000).run();
        for sample in outcome.samples.iter().step_by(5) {
            println!("{:?}", sample);
        }
        println!(
            "{n}: shares {:?} most {} marks {} cnps {} rule {} handled {} {:?} again {}",
            outcome.shares(ms * 500_000), outcome.most_queue_bytes, outcome.marks_counted,
            outcome.cnps_sent, outcome.cnps_by_rule(50_000), outcome.cnps_handled, outcome.stats, outcome.sent_again
        );
    }
}
