//! The congestion control of a profile.

use pumice_transport::qp::{Congestion, CongestionAlgorithm, DcqcnParameters, NotificationParameters};
use serde::Deserialize;

use super::PortProfile;

/// The algorithm by which a sender slows down (`congestion.algorithm`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// The window shrinks at a CNP.
    #[default]
    Window,
    /// The rate falls at a CNP: DCQCN.
    Dcqcn,
}

/// The source of parameters that a profile leaves out (`congestion.preset`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// The documented defaults of ConnectX-4 and later.
    #[default]
    Connectx,
    /// The values of the paper on DCQCN.
    Paper,
}

/// The least time between CNPs on ConnectX, in µs.
const CONNECTX_CNP_INTERVAL_US: u32 = 4;

/// The congestion control of a device (`[congestion]`). A parameter that is left out has the value of the
/// preset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)] // The parameters are those of `DcqcnParameters`, which says what they are.
pub struct CongestionProfile {
    pub algorithm: Algorithm,
    pub preset: Preset,
    /// The line rate in Mbit/s; by default that of `port.speed` and `port.width`.
    pub line_rate: Option<u32>,
    pub rpg_time_reset: Option<u32>,
    pub rpg_byte_reset: Option<u32>,
    pub rpg_threshold: Option<u32>,
    pub rpg_max_rate: Option<u32>,
    pub rpg_ai_rate: Option<u32>,
    pub rpg_hai_rate: Option<u32>,
    pub rpg_gd: Option<u8>,
    pub rpg_min_dec_fac: Option<u8>,
    pub rpg_min_rate: Option<u32>,
    pub rate_to_set_on_first_cnp: Option<u32>,
    pub dce_tcp_g: Option<u16>,
    pub dce_tcp_rtt: Option<u32>,
    pub rate_reduce_monitor_period: Option<u32>,
    pub initial_alpha_value: Option<u16>,
    pub clamp_tgt_rate: Option<bool>,
    pub clamp_tgt_rate_after_time_inc: Option<bool>,
    pub max_burst_bytes: Option<u32>,
    /// The least time between CNPs in µs; by default 50, and 4 with DCQCN as on ConnectX.
    pub min_time_between_cnps: Option<u32>,
    pub cnp_dscp: Option<u8>,
}

impl CongestionProfile {
    /// Returns the congestion control of the queue pairs of a device with this port.
    pub fn of_port(&self, port: &PortProfile) -> Congestion {
        let notification = self.notification();
        match self.algorithm {
            Algorithm::Window => Congestion { algorithm: CongestionAlgorithm::Window, notification },
            Algorithm::Dcqcn => Congestion::dcqcn(self.parameters(port), notification),
        }
    }

    fn notification(&self) -> NotificationParameters {
        let plain = NotificationParameters::default();
        let interval = match (self.algorithm, self.preset) {
            (Algorithm::Dcqcn, Preset::Connectx) => CONNECTX_CNP_INTERVAL_US,
            _ => plain.min_time_between_cnps,
        };
        NotificationParameters {
            min_time_between_cnps: self.min_time_between_cnps.unwrap_or(interval),
            cnp_dscp: self.cnp_dscp.unwrap_or(plain.cnp_dscp),
        }
    }

    fn parameters(&self, port: &PortProfile) -> DcqcnParameters {
        let preset = match self.preset {
            Preset::Connectx => DcqcnParameters::CONNECTX,
            Preset::Paper => DcqcnParameters::PAPER,
        };
        let port_rate = u32::from(port.speed.lane_rate()) * 100 * u32::from(port.width.lanes());
        DcqcnParameters {
            line_rate: self.line_rate.unwrap_or(port_rate),
            rpg_time_reset: self.rpg_time_reset.unwrap_or(preset.rpg_time_reset),
            rpg_byte_reset: self.rpg_byte_reset.unwrap_or(preset.rpg_byte_reset),
            rpg_threshold: self.rpg_threshold.unwrap_or(preset.rpg_threshold),
            rpg_max_rate: self.rpg_max_rate.unwrap_or(preset.rpg_max_rate),
            rpg_ai_rate: self.rpg_ai_rate.unwrap_or(preset.rpg_ai_rate),
            rpg_hai_rate: self.rpg_hai_rate.unwrap_or(preset.rpg_hai_rate),
            rpg_gd: self.rpg_gd.unwrap_or(preset.rpg_gd),
            rpg_min_dec_fac: self.rpg_min_dec_fac.unwrap_or(preset.rpg_min_dec_fac),
            rpg_min_rate: self.rpg_min_rate.unwrap_or(preset.rpg_min_rate),
            rate_to_set_on_first_cnp: self
                .rate_to_set_on_first_cnp
                .unwrap_or(preset.rate_to_set_on_first_cnp),
            dce_tcp_g: self.dce_tcp_g.unwrap_or(preset.dce_tcp_g),
            dce_tcp_rtt: self.dce_tcp_rtt.unwrap_or(preset.dce_tcp_rtt),
            rate_reduce_monitor_period: self
                .rate_reduce_monitor_period
                .unwrap_or(preset.rate_reduce_monitor_period),
            initial_alpha_value: self.initial_alpha_value.unwrap_or(preset.initial_alpha_value),
            clamp_tgt_rate: self.clamp_tgt_rate.unwrap_or(preset.clamp_tgt_rate),
            clamp_tgt_rate_after_time_inc: self
                .clamp_tgt_rate_after_time_inc
                .unwrap_or(preset.clamp_tgt_rate_after_time_inc),
            max_burst_bytes: self.max_burst_bytes.unwrap_or(DcqcnParameters::CONNECTX.max_burst_bytes),
        }
    }
}
