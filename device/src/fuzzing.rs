//! A door for fuzzing: the readers of what other processes write are private, and this is no part of the API.

pub use crate::share::fuzzing::{domain_record_is_stable, share_record_is_stable};
