//! The pumice command line.
fn main() {}
