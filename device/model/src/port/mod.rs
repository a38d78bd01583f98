//! What every port does, and what it carries.

pub mod batch;
pub mod directory;
pub mod group;
pub mod traits;
