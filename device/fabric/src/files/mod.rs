//! The folders, files, locks and socket names by which processes meet.

pub(crate) mod folder;
pub(crate) mod foreign_folder;
pub(crate) mod lock;
pub(crate) mod runtime_folders;
pub(crate) mod sockets;
pub(crate) mod wait;
