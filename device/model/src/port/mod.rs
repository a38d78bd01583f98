//! What every port does, and what it carries.

pub mod batch;
pub mod copies;
pub mod copy_choice;
pub mod directory;
pub mod group;
pub mod limits;
pub mod null_port;
pub mod segments;
pub mod traits;
pub mod two_ports;
