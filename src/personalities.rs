//! The personalities: adapters that a device can look like, as a table of what their profiles say.

use std::io::{self, Write};

use pumice_device::profile::{BUILT_IN, PERSONALITIES, Profile, Vendor};
use pumice_transport::types::QpType;
use serde::Serialize;

use crate::outcome::CommandError;

/// What is told of a personality.
#[derive(Serialize)]
pub(crate) struct Personality {
    /// `pumice run --device NAME`.
    pub(crate) name: &'static str,
    /// The first device's name.
    device: String,
    /// Vendor and part.
    pub(crate) id: String,
    /// The driver that sysfs names.
    pub(crate) driver: String,
    link_layer: &'static str,
    /// Kinds of queue pairs.
    pub(crate) queue_pairs: String,
    /// The vendor's calls that programs get, if any.
    pub(crate) vendor_calls: Option<&'static str>,
    /// Calls that are refused.
    pub(crate) refused: Vec<&'static str>,
    /// The first sentences of the profile.
    pub(crate) remark: String,
}

/// All of them.
pub(crate) fn all() -> Vec<Personality> {
    let texts = BUILT_IN.iter().filter(|(name, _)| PERSONALITIES.contains(name));
    let each = texts.filter_map(|(name, text)| Some((*name, *text, Profile::parse(text).ok()?)));
    let told = each.map(|(name, text, profile)| Personality {
        name,
        device: profile.devices.iter().find_map(|device| device.name.clone()).unwrap_or_default(),
        id: format!("{:#06x}:{:#06x}", profile.vendor_id, profile.part_id),
        driver: profile.driver.clone(),
        link_layer: profile.port.link_layer.name(),
        queue_pairs: profile.queue_pairs.words(),
        vendor_calls: profile.direct_call_names().or_else(|| dc_calls(&profile)),
        refused: profile.refuses.calls().iter().map(|call| call.name()).collect(),
        remark: remark(text),
    });
    told.collect()
}

/// Without all calls of the vendor programs may get those that make and use queue pairs of DC.
fn dc_calls(profile: &Profile) -> Option<&'static str> {
    let has_dc = profile.vendor() == Some(Vendor::Mellanox) && profile.queue_pairs.has(QpType::Dci);
    has_dc.then_some("mlx5dv_* of DC")
}

/// The comment at the beginning of a profile.
pub(crate) fn remark(text: &str) -> String {
    let comment = text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim);
    comment.collect::<Vec<_>>().join(" ")
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

/// Prints the same as JSON.
pub(crate) fn print_json(out: &mut dyn Write) -> Result<(), CommandError> {
    serde_json::to_writer_pretty(&mut *out, &all())?;
    writeln!(out)?;
    Ok(())
}
