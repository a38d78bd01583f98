//! The software HCA.

pub mod error;
pub mod memory;
pub mod table;
