//! The personalities: adapters that a device can look like, as a table of their profiles.

use std::io::{self, Write};

use pumice_device::profile::{BUILT_IN, Profile, Vendor};
use pumice_transport::types::QpType;
use serde::Serialize;

use crate::outcome::CommandError;

/// A personality as the table shows it.
#[derive(Serialize)]
pub(crate) struct Personality {
    /// Name for `pumice run --device NAME`.
    pub(crate) name: &'static str,
    /// Name of the first device.
    device: String,
    /// Vendor and part.
    pub(crate) id: String,
    /// Driver that sysfs names.
    pub(crate) driver: String,
    link_layer: &'static str,
    /// Kinds of queue pairs.
    pub(crate) queue_pairs: String,
    /// Vendor calls that programs get, if any.
    pub(crate) vendor_calls: Option<&'static str>,
    /// Calls that are refused.
    pub(crate) refused: Vec<&'static str>,
    /// The first sentences of the profile.
    pub(crate) remark: String,
}

/// Returns all personalities.
pub(crate) fn all() -> Vec<Personality> {
    let personalities = BUILT_IN.iter().filter(|built_in| built_in.is_personality());
    let each = personalities.filter_map(|built_in| Some((built_in, Profile::parse(built_in.text).ok()?)));
    let listed = each.map(|(built_in, profile)| Personality {
        name: built_in.name,
        device: profile.devices.iter().find_map(|device| device.name.clone()).unwrap_or_default(),
        id: format!("{:#06x}:{:#06x}", profile.vendor_id, profile.part_id),
        driver: profile.driver.clone(),
        link_layer: profile.port.link_layer.name(),
        queue_pairs: profile.queue_pairs.words(),
        vendor_calls: profile.direct_call_names().or_else(|| dc_calls(&profile)),
        refused: profile.refuses.calls().iter().map(|call| call.name()).collect(),
        remark: built_in.remark(),
    });
    listed.collect()
}

/// Returns the note about DC: without the other vendor calls, programs may get those that create and use DC
/// queue pairs.
fn dc_calls(profile: &Profile) -> Option<&'static str> {
    let has_dc = profile.vendor() == Some(Vendor::Mellanox) && profile.queue_pairs.has(QpType::Dci);
    has_dc.then_some("mlx5dv_* of DC")
}

/// Prints the table.
pub(crate) fn print(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<12} {:<8} {:<15} {:<11} {:<12} {:<22} vendor calls",
        "personality", "device", "vendor:part", "driver", "link layer", "queue pairs"
    )?;
    for one in all() {
        writeln!(
            out,
            "{:<12} {:<8} {:<15} {:<11} {:<12} {:<22} {}",
            one.name,
            one.device,
            one.id,
            one.driver,
            one.link_layer,
            one.queue_pairs,
            one.vendor_calls.unwrap_or("none")
        )?;
    }
    Ok(())
}

/// Prints the table as JSON.
pub(crate) fn print_json(out: &mut dyn Write) -> Result<(), CommandError> {
    serde_json::to_writer_pretty(&mut *out, &all())?;
    writeln!(out)?;
    Ok(())
}
