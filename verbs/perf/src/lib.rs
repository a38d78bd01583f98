//! Measures the software HCA: bandwidth, message rate and latency, beside plain UDP, and whether every byte
//! arrives.
//!
//! Two ends, one device each, agree over TCP: a [`Server`] takes part in the rounds that a [`Session`] asks
//! for. A [`Plan`] describes the measurement, a [`Report`] its results. Each round of the device may be
//! followed by one of plain UDP or, if the packets go through shared memory, of memory: on a machine that
//! others use too, only ratios from the same run are meaningful. The ends may be threads of one process, as
//! here, or processes on two machines:
//!
//! ```
//! use std::net::TcpStream;
//! use std::thread;
//! use pumice_perf::{Operation, Plan, Server, ServerOptions, Service, Session, SessionOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # // Addresses that no other test uses at the same time: UDP port 4791 of an address has one owner.
//! # let [high, low] = (std::process::id() as u16).to_be_bytes();
//! # let [own, peer] = [1, 2].map(|last| std::net::IpAddr::from([127, 192 + high % 32, low, last]));
//! let options = ServerOptions { address: Some(peer), ..ServerOptions::default() };
//! let server = Server::bind("127.0.0.1:0".parse()?, options)?;
//! let to = server.local_addr()?;
//! let serving = thread::spawn(move || server.serve_one());
//!
//! let plan = Plan::latency(Operation::Send, Service::Rc).size_bytes(64).verify(true).rounds(2, 0.05);
//! let plan = plan.build()?;
//! let options = SessionOptions { address: Some(own), ..SessionOptions::default() };
//! let mut session = Session::open(&plan, TcpStream::connect(to)?, &options)?;
//! let report = session.run(&mut |_| ())?;
//! println!("{}: {:.2} {}, p99 {:.2?}", report.test, report.value, report.unit, report.p99);
//! assert_eq!((report.unit, report.rounds, report.verified), ("us", 2, true));
//!
//! drop(session);
//! serving.join().expect("the server does not panic")?;
//! # Ok(())
//! # }
//! ```
//!
//! A value is what this crate's own loops reach through [`pumice_verbs`]: they post, poll and count as a
//! program with nothing else to do. [`pairs`] compares several pairs of ends with one; [`connections`] counts
//! connections by address; [`machine`] pins threads to cores.
#![forbid(unsafe_code)]
// Messages of the other end must not end a program.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod connections;
mod control;
mod endpoint;
mod error;
pub mod machine;
mod memory;
pub mod pairs;
mod pattern;
mod plan;
mod raw;
mod report;
pub(crate) mod rounds;
mod server;
mod session;
mod statistics;

pub use error::{PerfError, Result};
pub use plan::{MeasuredQuantity, Operation, Plan, PlanBuilder, PlanError, Service};
pub use report::Report;
pub use server::{Server, ServerOptions};
pub use session::{MessageTimes, Session, SessionOptions};
pub use statistics::SampleSpread;

/// Default TCP port of a server: perftest's.
pub const DEFAULT_PORT: u16 = 18_515;
