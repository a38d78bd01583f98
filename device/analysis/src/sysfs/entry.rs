//! The entries of a tree.

/// A folder, a file or a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum SysfsEntry {
    Folder,
    /// Contents, including the newline at their end.
    File(String),
    /// Contents that are not text.
    Bytes(Vec<u8>),
    /// Target of the link.
    Link(String),
}
