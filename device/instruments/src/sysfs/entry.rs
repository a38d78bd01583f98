//! What stands at a path of a tree.

/// A folder, a file or a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Entry {
    Folder,
    /// Contents, the newline at their end included.
    File(String),
    /// Contents that are no text.
    Bytes(Vec<u8>),
    /// Where the link leads.
    Link(String),
}
