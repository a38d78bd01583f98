//! Congestion control, which limits the number of bytes in flight.

mod control;
mod nscc;

use alloc::boxed::Box;

pub use control::{CongestionControl, LossSample, SackSample, Unlimited};
pub use nscc::{Nscc, NsccParameters};

/// Name of the algorithm NSCC in profiles of congestion control.
pub const NSCC_NAME: &str = "uet-1.0-nscc";

/// Returns the algorithm of a name; `None` if the name is unknown. Without a name, there is no congestion
/// control.
pub fn algorithm(name: Option<&str>, nscc: NsccParameters) -> Option<Box<dyn CongestionControl>> {
    match name {
        None => Some(Box::new(Unlimited)),
        Some(NSCC_NAME) => Some(Box::new(Nscc::new(nscc))),
        Some(_) => None,
    }
}
