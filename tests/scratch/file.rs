//! Files of tests, which go away with the value.

use std::io::Write as _;

use tempfile::TempPath;

/// A file with this end of its name.
pub(crate) fn scratch(name: &str, contents: &str) -> TempPath {
    let mut file = tempfile::Builder::new().suffix(&format!("-{name}")).tempfile().unwrap();
    file.write_all(contents.as_bytes()).unwrap();
    file.into_temp_path()
}

pub(crate) fn path_of(file: &TempPath) -> &str {
    file.to_str().unwrap()
}
