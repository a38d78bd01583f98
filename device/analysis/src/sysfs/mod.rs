//! A tree of small files that shows the device as Linux would below /sys/class/infiniband and
//! /dev/infiniband: for programs that read them instead of asking libibverbs, or before they do.
//!
//! The tree is a snapshot: addresses that come later are not in it. Counters are the exception: the tree
//! contains their recipes (`live`). Beside it are Linux's answers through netlink (`netlink`). The preload
//! `libpumice_sysfs.so`, which shows the tree to a program, puts its folder in front of `/sys` and `/dev`.

mod contents;
mod live;
mod netlink;
mod write;

pub use live::{SysfsDevice, SysfsPort};
pub use write::{Sysfs, SysfsError};

/// Longest path of the folder with the tree, in bytes: the preload puts it in front of paths in a buffer of
/// fixed size.
pub const MAX_FOLDER_BYTES: usize = 512;
