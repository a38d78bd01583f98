//! The two media of one host, UDP and rings in shared memory, between real processes: the same errors, the
//! same faults; and what only rings can meet: peers that stop, starve, restart, fork, are very many, or are
//! elsewhere.
//!
//! The other processes are this test program again, in the role that the test `process` gives it. Those of
//! the role "node" do what they are told on their standard input ([`node::run`]).

#![allow(unreachable_pub, clippy::print_stdout)] // reasons for skipping

#[allow(dead_code)] // of the tests of shared ports
#[path = "../sharing/child.rs"]
mod child;
mod errors;
#[allow(dead_code)] // of the tests of shared ports
#[path = "../sharing/fleet.rs"]
mod fleet;
#[path = "../kit/mod.rs"]
mod kit;
mod lives;
mod many;
mod node;
mod planned;
mod remote;
mod starved;

/// Not a test: what a child process runs, which is told so by its environment.
#[test]
fn process() {
    match std::env::var("PUMICE_SHARING_ROLE").as_deref() {
        Ok("node") => node::run(),
        Ok("planned") => planned::run(),
        _ => {}
    }
}
