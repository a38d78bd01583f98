//! A simulation of the processes of a host: it tests `share` while they run, stop, fork and die in every
//! order.
//!
//! The code under test is the real code of `share`. Below it, instead of the operating system (`system`), is
//! a model of the kernel ([`Kernel`]), and each process is a coroutine that the [`World`] lets make one
//! system call at a time. A seed decides which process is next, which one is stopped, resumed, forked or
//! killed, and what the network and a hostile user do meanwhile; the same seed always gives the same run.
//!
//! The model of the kernel checks what has to hold in every run (no datagram with a payload reaches another
//! user), and so does the [`Ledger`](ledger::Ledger), which knows what all processes did.

mod actor;
mod domains;
mod files;
mod filter;
mod kernel;
mod ledger;
mod scenario;
mod seed_tests;
mod sockets;
mod world;

use std::net::{IpAddr, Ipv4Addr};

pub(crate) use files::PAGE_BYTES;
pub(crate) use filter::run as run_filter;
pub(crate) use kernel::{Fd, Kernel, Packet};
pub(crate) use sockets::SocketName;
pub(crate) use world::{TaskWait, block, call, is_simulated, observe};

/// Addresses of the simulated host.
pub(crate) const HOST_ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))];
