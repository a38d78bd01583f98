//! The software HCA.

pub mod interface;
pub mod port;
