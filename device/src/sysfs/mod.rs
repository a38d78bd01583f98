//! What Linux would show of the device below /sys/class/infiniband and /dev/infiniband, as a tree of small
//! files: for programs that look there instead of asking libibverbs, or before they do.
//!
//! The tree is a snapshot: addresses that come later are not in it. Counters are the exception: the tree says
//! what they are made of (`live`). Beside it is what Linux answers through netlink (`netlink`). The preload
//! `libpumice_sysfs.so`, which shows the tree to a program, puts its folder in front of `/sys` and `/dev`.

mod contents;
mod live;
mod netlink;
mod write;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

pub use write::SysfsError;

use crate::addresses::gid_table::GidEntry;
use crate::profile::Profile;

/// Bytes that the path of the folder with the tree may have: the preload puts it in front of paths in a
/// buffer of fixed size.
pub const MAX_FOLDER_BYTES: usize = 512;

/// What the tree tells of a device. The same values as the verbs that query it give.
#[derive(Debug, Clone)]
pub struct SysfsDevice<'a> {
    /// Name, such as "pumice0".
    pub name: &'a str,
    /// GUID of the node and of the system image, as it travels.
    pub guid: [u8; 8],
    /// What else the device says about itself.
    pub profile: &'a Profile,
    /// The GID table.
    pub gids: &'a [GidEntry],
    /// Where the processes count, for files whose contents change (`share::counted_file_name`).
    pub counted: Option<&'a Path>,
    /// The processors of the host as Linux lists them ("0-3,8"), if that is known.
    pub processors: Option<&'a str>,
}

/// A tree. Paths are relative to its folder: `sys/class/infiniband`, `dev/infiniband`, ….
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sysfs {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Entry {
    Folder,
    /// Contents, the newline at their end included.
    File(String),
    /// Contents that are no text.
    Bytes(Vec<u8>),
    /// Where the link leads.
    Link(String),
}

impl Sysfs {
    /// The tree of a device.
    pub fn of(device: &SysfsDevice<'_>) -> Sysfs {
        Sysfs { entries: contents::entries(device) }
    }

    /// A name for its folder, another one for other contents: nobody has to change a tree that is in use.
    pub fn folder_name(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        format!("sysfs-{:016x}", hasher.finish())
    }
}
