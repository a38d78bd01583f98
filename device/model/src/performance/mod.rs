//! Performance models: the time that an adapter, its host and its network take, as data with sources.
//!
//! [`PerformanceModel`] is the data, [`sum`] computes from it what a benchmark prints, and [`Costs`] is
//! what a device in a world charges, message by message.

mod arrivals;
mod model;
pub mod sum;

pub use arrivals::{ArrivalTimes, CostedPacket};
pub use model::{
    BUILT_IN_MODELS, BuiltInModel, Figure, KEYS, Key, KeyInfo, ModelError, PerformanceModel, Placement,
};
pub use sum::{Cost, Costs};
