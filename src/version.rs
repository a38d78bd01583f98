//! What `pumice --version` says. The build script sets the variables.

/// `pumice -V`: one line.
pub(crate) const SHORT: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("PUMICE_BUILT_COMMIT"), ")");

/// `pumice --version`: the line of the version, and what the program was built from.
pub(crate) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit:   ",
    env!("PUMICE_BUILT_COMMIT"),
    "\nfeatures: ",
    env!("PUMICE_BUILT_FEATURES"),
    "\ntarget:   ",
    env!("PUMICE_BUILT_TARGET"),
    "\nprofile:  ",
    env!("PUMICE_BUILT_PROFILE"),
);
