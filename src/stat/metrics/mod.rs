//! Counters and states of processes as metrics for Prometheus and compatible programs.

mod families;
mod scrape;
mod text;

pub(super) use scrape::scrape;
pub(super) use text::{MetricsFormat, write};
