//! The result of the run at a point.

use serde::Serialize;

/// The result of the run at a point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PointResult {
    /// Values of the parameters, in the order of the axes.
    pub(super) values: Vec<String>,
    /// The figure; `None` if the program did not print it, or failed.
    pub(super) figure: Option<f64>,
    /// Duration by the clock of the world, in ns.
    pub(super) world_ns: u64,
    /// How the run ended.
    pub(super) end: String,
    /// The run is certain to repeat.
    pub(super) is_certified: bool,
}

/// Returns a figure with as many digits as it needs.
pub(super) fn shown(figure: f64) -> String {
    let text = format!("{figure:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
