//! What processes do, as metrics that Prometheus and others read.

mod families;
mod family;
mod scrape;
mod text;

pub(super) use scrape::scrape;
pub(super) use text::{Format, write};
