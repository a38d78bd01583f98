//! Who drives the engine: the application's threads, a background thread, or virtual time.

mod background;
mod core;
mod world;

pub(crate) use background::Background;
pub(crate) use core::Core;
pub use world::World;
